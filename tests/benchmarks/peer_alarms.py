"""Runs programs under other tools and prints the names of the checks that raised an alarm.

`python peer_alarms.py` reads a line `[TOOL, KIND, FILE]` of JSON per program, with KIND `train` for
a script and `model` for a file that defines `build_model()`, `build_batch()` and `loss_fn(output,
batch)`. For each it writes a line: the names of the checks that raised a warning or more. Each
program has a process of its own, and none if it does not end within `LIMIT` seconds.

Each tool gets what its documentation asks for: the model, the optimizer, a call per step, and the
loss. A script is not edited: hooks on torch's optimizers make these calls, and the model is the
module that owns the optimizer's parameters.
"""

import contextlib
import gc
import inspect
import json
import os
import re
import runpy
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

STEPS = 20
"""Steps of a model that has no training loop of its own."""

LIMIT = 110
"""Seconds that a program may take under a tool."""


class Peer(Protocol):
    """A tool that is called around each optimizer step."""

    def before_step(self) -> None:
        """Look at the gradients."""

    def after_step(self, loss: float) -> None:
        """Look at what the step did."""

    def alarms(self) -> set[str]:
        """Return the names of the checks that raised a warning or more."""


class TorchAudit:
    """torch-audit: its auditor patches the model's forward and the optimizer's step.

    Its TA2 rules are left out: they are about speed.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        import torch_audit

        self._severities = {torch_audit.Severity.INFO}
        self._auditor = torch_audit.Auditor(model, optimizer=optimizer, every_n_steps=1)
        self._auditor.audit_static()
        self._auditor.audit_init()
        self._auditor.autopatch(run_static=False, run_init=False)

    def before_step(self) -> None: ...

    def after_step(self, loss: float) -> None: ...

    def alarms(self) -> set[str]:
        findings = [one for one in self._auditor.findings if not one.rule_id.startswith("TA2")]
        return {one.rule_id for one in findings if one.severity not in self._severities}


class Traintools:
    """traintools: its gradient monitor inspects the model between backward and step."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        from traintools import GradientHealthMonitor

        self._monitor = GradientHealthMonitor()
        self._model, self._optimizer = model, optimizer
        self._warnings: set[str] = set()

    def before_step(self) -> None:
        lr = float(self._optimizer.param_groups[0]["lr"])
        for warning in self._monitor.inspect(self._model, lr=lr).warnings:
            self._warnings.add(re.sub(r"\(.*|^\S+ (?=has|gradient|update)", "", warning).strip())

    def after_step(self, loss: float) -> None: ...

    def alarms(self) -> set[str]:
        return self._warnings


class Torchmortem:
    """torchmortem: its autopsy takes every step's loss and reports after the training."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        from torchmortem import Autopsy, Severity

        self._autopsy = Autopsy(model, optimizer=optimizer, sampling="thorough")
        self._autopsy.attach()
        self._severities = {Severity.WARNING, Severity.CRITICAL}

    def before_step(self) -> None: ...

    def after_step(self, loss: float) -> None:
        self._autopsy.step(loss=loss)

    def alarms(self) -> set[str]:
        self._autopsy.detach()
        report = self._autopsy._report  # `report()` would write a file.
        findings = report.findings if report else ()
        return {one.detector for one in findings if one.severity in self._severities}


PEERS: dict[str, Callable[[nn.Module, torch.optim.Optimizer], Peer]] = {
    "torch-audit": TorchAudit,
    "traintools": Traintools,
    "torchmortem": Torchmortem,
}


class Hooks:
    """Calls a peer around the steps of the first optimizer that a program makes."""

    def __init__(self, make: Callable[[nn.Module, torch.optim.Optimizer], Peer]) -> None:
        self._make = make
        self._peer: Peer | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._loss = float("nan")
        self._handles = [
            register_optimizer_step_pre_hook(self._before),
            register_optimizer_step_post_hook(self._after),
        ]
        backward = torch.Tensor.backward

        def noting(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> None:
            if tensor.numel() == 1:
                self._loss = float(tensor.detach())
            backward(tensor, *args, **kwargs)

        torch.Tensor.backward = noting

    def _before(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if self._optimizer is None:
            self._optimizer = optimizer
            self._peer = self._make(owner_of(optimizer), optimizer)
        if optimizer is self._optimizer and self._peer:
            self._peer.before_step()

    def _after(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if optimizer is self._optimizer and self._peer:
            self._peer.after_step(self._loss)

    def alarms(self) -> set[str]:
        """Return the peer's alarms; none if no optimizer made a step."""
        for handle in self._handles:
            handle.remove()
        return self._peer.alarms() if self._peer else set()


def owner_of(optimizer: torch.optim.Optimizer) -> nn.Module:
    """Return the module with the most parameters that owns some of an optimizer's."""
    held = {id(one) for group in optimizer.param_groups for one in group["params"]}
    # `isinstance` would ask some objects for their class, which has effects of its own.
    modules = [one for one in gc.get_objects() if issubclass(type(one), nn.Module)]
    sizes = {
        len(ids): module
        for module in modules
        if held & (ids := {id(parameter) for parameter in module.parameters()})
    }
    return sizes[max(sizes)]


def train(path: Path) -> None:
    """Train the model of a file for some steps on its batch."""
    file = runpy.run_path(str(path))
    model = file["build_model"]()
    batch = file["build_batch"]()
    if "build_optimizer" in file:
        optimizer = file["build_optimizer"](model)
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        file["loss_fn"](call(model, batch), batch).backward()
        optimizer.step()


def call(model: nn.Module, batch: object) -> object:
    """Call a model on its part of a batch."""
    return forward(model, inputs_of(model, batch))


def forward(model: nn.Module, inputs: object, *_: object) -> object:
    """Call a model on its inputs."""
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


def inputs_of(model: nn.Module, batch: object) -> dict | tuple:
    """Return the model's part of a batch.

    All of a dict that it takes; of a tuple as many as it takes, the last one only if it has to.
    """
    parameters = inspect.signature(model.forward).parameters
    if isinstance(batch, dict):
        return {name: value for name, value in batch.items() if name in parameters}
    parts = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
    needed = sum(one.default is one.empty for one in parameters.values())
    return parts[: max(1, needed, min(len(parameters), len(parts) - 1))]


def torchtest2_alarms(path: Path) -> set[str]:
    """Return the checks of torchtest2 that failed or warned; it takes models, no scripts."""
    import torchtest2

    file = runpy.run_path(str(path))
    model, batch = file["build_model"](), file["build_batch"]()

    report = torchtest2.check_model(
        model,
        inputs_of(model, batch),
        None,
        forward_fn=forward,
        eval_forward_fn=forward,
        loss_fn=lambda output, *_: file["loss_fn"](output, batch),
    )
    return {one.name for one in (*report.failures, *report.warnings)}


def alarms(tool: str, kind: str, path: Path) -> set[str]:
    """Return the names of the checks of a tool that raised an alarm on a program."""
    if tool == "torchtest2":
        return torchtest2_alarms(path) if kind == "model" else set()
    hooks = Hooks(PEERS[tool])
    # A program may end by an exception; what the tool saw until then counts.
    with contextlib.suppress(Exception, SystemExit):
        if kind == "train":
            runpy.run_path(str(path), run_name="__main__")
        else:
            train(path)
    return hooks.alarms()


def answer(tool: str, kind: str, path: Path) -> None:
    """Write the alarms of a tool on a program; end this process if that takes too long."""
    signal.alarm(LIMIT)
    os.chdir(path.parent)
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent))
    with contextlib.redirect_stdout(sys.stderr):
        found = sorted(alarms(tool, kind, path))
    os.write(1, json.dumps(found).encode())


def main() -> None:
    """Answer each line of the input from a forked process."""
    torch.set_num_threads(1)
    for line in sys.stdin:
        tool, kind, file = json.loads(line)
        child = os.fork()
        if not child:
            try:
                answer(tool, kind, Path(file))
            except BaseException as error:  # noqa: BLE001
                print(f"{tool}, {file}: {error!r}", file=sys.stderr)
                os._exit(1)
            os._exit(0)
        has_failed = os.waitpid(child, 0)[1]
        os.write(1, b"[]\n" if has_failed else b"\n")


if __name__ == "__main__":
    main()
