"""The steps of optimizers: what each had to work with, written to the recording at its end."""

import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch._C import DisableTorchFunction
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from gradscope.capture.elements import is_readable
from gradscope.capture.statistics import norms
from gradscope.capture.training.close_looks import CloseLooks
from gradscope.capture.training.journal import Number, known
from gradscope.capture.training.keeping import Keeping, KeptEntry
from gradscope.capture.training.ledger import SPENT, UNSPENT, Entry
from gradscope.capture.training.optimizers import Known, describe, learning_rate
from gradscope.capture.training.places import Place
from gradscope.capture.training.rounding import Sample, rounded, samples_of
from gradscope.capture.training.scene import Scene
from gradscope.capture.training.step_writer import Finished, Measured, StepWriter
from gradscope.capture.training.troubles import Troubles

_UPDATES_FIRST, _UPDATES_EVERY = 3, 10
"""Weights and updates are measured in so many steps of an optimizer at first, and in every so
manieth later."""

_COPIED = 50_000_000
"""Elements: an optimizer with more of them is too large to copy for the measure of an update."""


@dataclass(slots=True)
class _Open:
    """A step that runs."""

    known: Known
    place: Place
    has_closure: bool
    numbers: dict[str, Number]
    measured: list[Measured] | None
    before: list[Tensor] | None
    """Copies of the parameters."""
    samples: list[Sample] = field(default_factory=list)
    kept: list[KeptEntry] = field(default_factory=list)
    is_wrapper: bool = False
    """Whether another optimizer's step within it moves its parameters."""


class _OfThread(threading.local):
    """The steps that a thread runs, outermost first."""

    def __init__(self) -> None:
        self.open: list[_Open] = []


class Steps:
    """Watches the steps of every optimizer.

    Args:
        scene: What is known of the script.
        writer: Takes each step that is over.
        every: Gradients are measured in every so manieth step.
        keeping: Which of them are kept.
        ended: Is called after each step that was written.
    """

    def __init__(
        self,
        scene: Scene,
        writer: StepWriter,
        *,
        every: int,
        keeping: Keeping,
        ended: Callable[[], None],
    ) -> None:
        self._scene, self._writer, self._every, self._ended = scene, writer, every, ended
        self._keeping = keeping
        self._own = _OfThread()
        self._handles: list[RemovableHandle] = []
        self._troubles = Troubles()
        self._made: dict[int, int] = {}
        """By optimizer: how many steps it has made."""
        self.stepped: set[int] = set()
        """The optimizers (by `id`) that have stepped since somebody last asked."""

    @property
    def has_seen(self) -> bool:
        """Whether any optimizer has stepped."""
        return bool(self._made)

    def start(self) -> None:
        """Begin to see steps."""
        self._handles = [
            register_optimizer_step_pre_hook(self._enter),
            register_optimizer_step_post_hook(self._leave),
        ]

    def stop(self) -> None:
        """See no more steps."""
        while self._handles:
            self._handles.pop().remove()

    def _enter(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not torch.compiler.is_compiling():
            has_closure = any(callable(one) for one in (*args[1:2], kwargs.get("closure")))
            self._scene.guard.run(self._before, optimizer, has_closure, sys._getframe(1))

    def _leave(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        guard = self._scene.guard
        if torch.compiler.is_compiling() or not guard.active:
            return
        guard.run(self._finish, optimizer)

    def _before(self, optimizer: Optimizer, has_closure: bool, frame: FrameType) -> None:
        scene = self._scene
        place = scene.places.of(frame)
        scene.sync(frame)
        scene.ledger.steps_are_unseen = False
        one = scene.optimizers.of(optimizer)
        scene.optimizers.name_by_step(one, place)
        self._own.open.append(_Open(one, place, has_closure, {}, None, None))
        scene.stepping.append(set())
        if not has_closure:
            self._look(self._own.open[-1], {id(e) for e in one.entries if e.state == UNSPENT})
            if scene.looks is not None:
                scene.looks.step_begins()
        if self._is_due(one) and self._writer.steps % self._every == 0:
            self._own.open[-1].samples = samples_of(one.entries)
            self._own.open[-1].before = _copies(one) if _is_copyable(one) else None

    def _look(self, step: _Open, fresh: set[int]) -> None:
        """Note what the optimizer has to work with."""
        entries = step.known.entries
        gradients = [(e, _gradient(e)) for e in entries]
        present = [e for e, gradient in gradients if gradient is not None]
        of_fresh = [e for e in present if id(e) in fresh]
        step.numbers = {
            "parameters": float(len(entries)),
            "with_gradient": float(len(present)),
            "fresh": float(len(of_fresh)),
            "stale": float(sum(e.state == SPENT and id(e) not in fresh for e in present)),
            "none": float(len(entries) - len(present)),
            "backwards": float(max((e.passes for e in of_fresh), default=0)),
            "clipped": float(sum(e.clipped for e in present)),
            "written": float(sum(e.is_written for e in of_fresh)),
            "manual": 0.0,
        }
        if self._keeping.is_due(self._made.get(step.known.index, 0)):
            step.kept = self._keeping.kept(entries, _own_scale(step.known))
        if self._writer.steps % self._every == 0:
            step.measured = _measure(
                step.known,
                scale=_own_scale(step.known),
                with_weights=self._is_due(step.known) or not step.known.weights,
            )
            found = [one.gradient for one in step.measured if one.gradient is not None]
            if found or not present:  # else none of them can be read
                step.numbers["norm"] = math.hypot(*found)
            step.numbers["nonfinite"] = float(sum(not math.isfinite(norm) for norm in found))
            if step.numbers["nonfinite"] and self._scene.looks is not None:
                self._tell_broken(self._scene.looks, step.measured)

    @staticmethod
    def _tell_broken(looks: CloseLooks, measured: list[Measured]) -> None:
        known = [
            (p, math.isfinite(one.gradient))
            for one in measured
            if one.gradient is not None and (p := one.entry.parameter()) is not None
        ]
        looks.gradients_broke(
            [parameter for parameter, is_finite in known if not is_finite],
            [parameter for parameter, is_finite in known if is_finite],
        )

    def _finish(self, optimizer: Optimizer) -> None:
        if self._after(optimizer):
            self._ended()

    def _after(self, optimizer: Optimizer) -> bool:
        """Write the step; return whether it was one."""
        scene = self._scene
        if not self._own.open or self._own.open[-1].known.optimizer() is not optimizer:
            self._own.open.clear()  # a step before this one was left by an exception
            scene.stepping.clear()
            return False
        step, came = self._own.open.pop(), scene.stepping.pop()
        if step.is_wrapper:
            return False
        if step.has_closure:
            self._look(step, came or {id(e) for e in step.known.entries if e.state == UNSPENT})
        own = set(map(id, step.known.entries))
        for outer in self._own.open:
            outer.is_wrapper |= not own.isdisjoint(map(id, outer.known.entries))
        if torch._C._current_graph_task_id() != -1:
            scene.taken_meanwhile += int(float(step.numbers["fresh"]))
        scene.ledger.spend(step.known.entries)
        self._made[step.known.index] = self._made.get(step.known.index, 0) + 1
        self.stepped.add(id(optimizer))
        self._write(step, optimizer)
        self._tell_looks(step)
        return True

    def _tell_looks(self, step: _Open) -> None:
        looks = self._scene.looks
        if looks is None:
            return
        if self._troubles.has_new(step.known.index, step.numbers, step.measured):
            looks.trouble()
        entries = step.known.entries
        parameters = (p for entry in entries if (p := entry.parameter()) is not None)
        looks.step_ended(step.known.index, parameters, step.place)

    def _write(self, step: _Open, optimizer: Optimizer) -> None:
        if step.before is not None and step.measured is not None:
            _measure_updates(step.known, step.before, step.measured)
        numbers = step.numbers | known(lr=learning_rate(optimizer))
        self._scene.journal.note(
            "step", step.place, numbers, optimizer=step.known.index, subject=step.known.name
        )
        self._writer.write(
            Finished(
                describe(optimizer),
                step.measured or [],
                step.known.index,
                tuple(rounded(step.samples)),
                step.kept,
            )
        )

    def _is_due(self, one: Known) -> bool:
        """Return whether weights and updates are measured in an optimizer's next step."""
        made = self._made.get(one.index, 0)
        return made < _UPDATES_FIRST or made % _UPDATES_EVERY == 0


def _gradient(entry: Entry) -> Tensor | None:
    parameter = entry.parameter()
    return None if parameter is None else parameter.grad


def _own_scale(one: Known) -> float:
    """Return by what an optimizer divides its gradients itself, as fused ones do for a scaler."""
    scale = getattr(one.optimizer(), "grad_scale", None)
    return float(scale) if isinstance(scale, Tensor) else 1.0


def _measure(one: Known, *, scale: float, with_weights: bool) -> list[Measured]:
    """Measure the gradients and weights of an optimizer's parameters, where they can be read."""
    entries = [(e, p) for e in one.entries if (p := e.parameter()) is not None]
    gradients = [(place, p.grad) for place, (_, p) in enumerate(entries) if p.grad is not None]
    with DisableTorchFunction(), torch.no_grad():
        weights = [p for _, p in entries] if with_weights else []
        values = norms(weights + [gradient for _, gradient in gradients])
    if with_weights:
        one.weights = {id(e): norm for (e, _), norm in zip(entries, values, strict=False)}
        del values[: len(entries)]
    rest = [norm / scale for norm in values]
    by_place = dict(zip((place for place, _ in gradients), rest, strict=True))
    # NaN stands for what cannot be measured as well, which is no gradient that has gone wrong.
    unseen = {
        p for p, gradient in gradients if math.isnan(by_place[p]) and not is_readable(gradient)
    }
    return [
        Measured(
            entry,
            one.weights.get(id(entry), math.nan),
            by_place.get(place),
            p.numel(),
            p.requires_grad,
        )
        for place, (entry, p) in enumerate(entries)
        if place not in unseen
    ]


def _is_copyable(one: Known) -> bool:
    tensors = [p for e in one.entries if (p := e.parameter()) is not None]
    return sum(tensor.numel() for tensor in tensors) <= _COPIED and all(
        tensor.is_cpu and tensor.layout is torch.strided for tensor in tensors
    )


def _copies(one: Known) -> list[Tensor]:
    with DisableTorchFunction(), torch.no_grad():
        return [p.detach().clone() for e in one.entries if (p := e.parameter()) is not None]


def _measure_updates(one: Known, before: list[Tensor], measured: list[Measured]) -> None:
    after = [p.detach() for e in one.entries if (p := e.parameter()) is not None]
    if len(after) != len(before) or len(after) != len(measured):
        return
    with DisableTorchFunction(), torch.no_grad():
        for old, new in zip(before, after, strict=True):
            torch.sub(new, old, out=old)
        for record, norm in zip(measured, norms(before), strict=True):
            record.update = norm
