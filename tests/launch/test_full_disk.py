"""A full disk during training ends only the recording."""

import re

from gradscope.recording.store import load_recording

SCRIPT = """
    import os, resource, sys
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()

    train(3)
    if "WATCHED" in os.environ:
        # Files cannot grow beyond this, as on a disk with so much room.
        resource.setrlimit(resource.RLIMIT_FSIZE, (250_000, 250_000))
    train(40)
    print(model.weight.sum().item(), torch.rand(1).item(), flush=True)
    sys.exit({code})
"""
"""Its log holds some steps within the room, but not all."""


def test_script_goes_on_and_the_steps_before_are_stored(
    plain_script_in, gradscope_in, write, tmp_path
):
    write("train.py", SCRIPT.format(code=3))
    done = gradscope_in(tmp_path, "run", "train.py", WATCHED="1")
    plain = plain_script_in(tmp_path)
    assert (done.returncode, done.stdout) == (3, plain.stdout)
    assert done.stderr.count("recording ended: cannot write") == 1
    recording = load_recording(tmp_path / "train.gradscope")
    assert 3 <= len(recording.steps) < 43
    assert not recording.finished
    assert len({stat.step for stat in recording.parameter_stats}) == len(recording.steps)


def test_gate_does_not_pass_a_run_whose_end_it_has_not_seen(gradscope_in, write, tmp_path):
    write("train.py", SCRIPT.format(code=0))
    done = gradscope_in(tmp_path, "run", "--check", "train.py", WATCHED="1")
    assert done.returncode == 2
    assert re.search(
        r"error: train.py continued after the \d+ steps that were recorded", done.stderr
    )
