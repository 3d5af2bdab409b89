"""Parts of recordings that are made by hand, with plain values where they do not matter."""

from gradscope.recording.origin import Environment, TargetRecord
from gradscope.recording.records import Recording

ENVIRONMENT = Environment(
    python="3.11.9", torch="2.13.0", platform="Linux", device="cpu", threads=1
)


def target(name="model.py", model="Net", *, root="/home/user/project", **changes) -> TargetRecord:
    """Return a target in the root of a repository."""
    values = {
        "batch": "",
        "loss": "",
        "optimizer": None,
        "mode": "train",
        "seed": None,
        "synthetic_loss": False,
        "root": root,
        "repository": root,
    }
    return TargetRecord(name=name, model=model, **(values | changes))


def recording(**parts) -> Recording:
    """Return a recording of the given parts, without any of the others."""
    values = {
        "version": "0.1.0",
        "command": "gradscope inspect model.py",
        "environment": ENVIRONMENT,
        "target": target(),
        "parameters": (),
        "modules": (),
        "calls": (),
        "sites": (),
        "nodes": (),
        "edges": (),
        "steps": (),
        "events": (),
        "parameter_stats": (),
        "tensor_stats": (),
        "skipped": (),
    }
    return Recording(**(values | parts))
