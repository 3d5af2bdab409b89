"""Detects averages, states and gradients that are kept without a copy."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from gradscope.capture.compiler import is_traced
from gradscope.capture.source.lines import Line
from gradscope.capture.step.self_averages import SelfAverage
from gradscope.capture.tensor_references import WeakTensor
from gradscope.capture.training.event_log import EventLog
from gradscope.capture.training.guard import Function, Guard, Patches
from gradscope.capture.training.kept_weights.keeping_lines import (
    aliasing_line,
    collecting_line,
    keeping_line,
)
from gradscope.capture.training.locations import Location, Locations
from gradscope.recording.events import KeptGradientsEvent, SharedWeightsEvent, named
from gradscope.target import members

_MOST_STATES = 64
"""Number of states that are known again, the last ones."""


class SharedWeights:
    """Records what a script keeps of its weights without a copy, once per line."""

    def __init__(self, guard: Guard, locations: Locations, event_log: EventLog) -> None:
        self._guard, self._locations, self._event_log = guard, locations, event_log
        self._noted: set[Line | None] = set()
        self._collected = Counter[Line]()
        """By line: number of steps in which it uses collections that were overwritten."""
        self._states: list[tuple[WeakTensor[Tensor], int]] = []
        """First tensors of states, each with the number of steps before the state was taken."""
        self._depth = 0
        self.steps = 0
        """Number of optimizer steps so far."""

    def install(self, patches: Patches) -> None:
        """Start to observe states of modules, and what is restored."""
        patches.wrap(nn.Module, "state_dict", self._wrap_taking)
        # Within `load_state_dict`, which other parts of gradscope replace.
        patches.wrap(nn.Module, "_load_from_state_dict", self._wrap_restoring)

    def averaged(self, averages: Iterable[SelfAverage]) -> None:
        """Record lines that average weights with themselves."""
        for one in averages:
            numbers = named(
                SharedWeightsEvent, parameters=float(len(one.memory)), factor=one.factor
            )
            self._note(one.line, numbers)

    def kept(self, found: Mapping[Line, int]) -> None:
        """Record lines that use collections of gradients which later backward passes wrote to.

        In two steps, as one that is kept for the whole training may be made in the first.
        """
        for line, collections in found.items():
            self._collected[line] += 1
            if self._collected[line] < 2:
                continue
            numbers = named(KeptGradientsEvent, collections=float(collections))
            self._note(line, numbers, "kept-gradients", collecting_line)

    def _note(
        self,
        line: Line | None,
        numbers: dict[str, Any],
        kind: str = "shared-weights",
        search: Callable[[Line], tuple[Line | None, str]] = keeping_line,
    ) -> None:
        if line is None or line in self._noted:
            return
        kept, name = search(line)
        where = kept or line
        is_known = where in self._noted
        self._noted |= {line, where}
        if is_known:
            return
        location = Location(where, where, None, 0)
        self._event_log.note(kind, location, numbers, subject=name)

    def _wrap_taking(self, original: Function) -> Function:
        def state_dict(module: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if is_traced() or self._depth or not self._guard.active:
                return original(module, *args, **kwargs)
            self._depth += 1  # it calls itself for the modules within
            try:
                state = original(module, *args, **kwargs)
            finally:
                self._depth -= 1
            self._guard.glance(self._take, state)
            return state

        return state_dict

    def _take(self, state: object) -> None:
        first = _first(state)
        if first is not None:
            self._states = [*self._states[-_MOST_STATES:], (WeakTensor(first), self.steps)]

    def _wrap_restoring(self, original: Function) -> Function:
        # Modules that extend it may pass its arguments by their names.
        def load(module: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if not is_traced() and self._guard.active:
                self._guard.glance(self._restore, module, args, kwargs, sys._getframe(1))
            return original(module, *args, **kwargs)

        return load

    def _restore(
        self,
        module: nn.Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        frame: FrameType,
    ) -> None:
        """Compare what is about to be restored with what the module has."""
        given = dict(zip(("state_dict", "prefix"), args, strict=False)) | dict(kwargs)
        state = given.get("state_dict")
        if given.get("prefix"):
            return  # a module within the one that is restored
        first = _first(state)
        taken = [steps for known, steps in self._states if first is not None and known() is first]
        if not taken or not isinstance(state, Mapping):
            return
        own = dict(members.named_parameters(module))
        shared = [name for name, one in own.items() if _is_shared(one, state.get(name))]
        if not own or len(shared) < len(own):
            return
        # `state_dict` returns the parameters' own memory: after a step it holds the new weights.
        since = self.steps - taken[-1]
        line = self._locations.of(frame).user
        if since:
            numbers = named(
                SharedWeightsEvent,
                parameters=float(len(shared)),
                restored=1.0,
                steps=float(since),
            )
            self._note(line, numbers)
        elif line is not None and aliasing_line(line)[0] is not None:
            numbers = named(SharedWeightsEvent, parameters=float(len(shared)), same=1.0)
            self._note(line, numbers, search=aliasing_line)


def _first(state: object) -> Tensor | None:
    """Return the first tensor of a state."""
    if not isinstance(state, Mapping):
        return None
    return next((one for one in state.values() if isinstance(one, Tensor)), None)


def _is_shared(parameter: Tensor, kept: object) -> bool:
    if type(kept) is not Tensor and type(kept) is not nn.Parameter:
        return False
    if parameter.is_meta or type(parameter) is not nn.Parameter or parameter.numel() == 0:
        return False
    assert isinstance(kept, Tensor)
    if kept.layout is not torch.strided or parameter.layout is not torch.strided:
        return False
    # The state holds detached tensors, other objects in the same memory.
    return kept.data_ptr() == parameter.data_ptr() and kept.shape == parameter.shape
