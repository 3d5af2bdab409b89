"""Records where a script zeroes gradients."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from torch import nn
from torch.optim import Optimizer

from gradscope.capture.compiler import is_traced
from gradscope.capture.shards import parameters_of
from gradscope.capture.training.gradient_state import EMPTY, UNSPENT, Entry
from gradscope.capture.training.locations import Location, receiver
from gradscope.capture.training.patches import Function, Patches
from gradscope.capture.training.state import TrainingState
from gradscope.recording.events import ZeroEvent, named

Owner = TypeVar("Owner", Optimizer, nn.Module)


@dataclass(frozen=True, slots=True)
class _Held:
    """State of the parameters before they were zeroed."""

    location: Location
    entries: list[Entry]
    parameters: int
    unspent: int
    optimizer: int | None
    subject: str


class Zeroing:
    """Observes `zero_grad` of optimizers and modules."""

    def __init__(self, training: TrainingState) -> None:
        self._training = training

    def install(self, patches: Patches) -> None:
        """Start observing."""
        patches.wrap(Optimizer, "zero_grad", partial(self._wrap, self._before_optimizers))
        patches.wrap(nn.Module, "zero_grad", partial(self._wrap, self._before_modules))

    def _wrap(self, before: Callable[[Owner, FrameType], _Held], original: Function) -> Function:
        guard = self._training.guard

        def begin(owner: Owner, frame: FrameType) -> _Held:
            held = before(owner, frame)
            guard.enter_change()
            return held

        def zero_grad(owner: Owner, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if not guard.active:
                return original(owner, *args, **kwargs)
            optimizer = owner if isinstance(owner, Optimizer) else None
            if self._training.repeats("zero", optimizer, sys._getframe(1)) or is_traced():
                return original(owner, *args, **kwargs)
            # State is read before the call: afterwards the gradients are gone, used or not.
            held = guard.run(begin, owner, sys._getframe(1))
            try:
                result = original(owner, *args, **kwargs)
            finally:
                if held is not None:
                    guard.leave_change()
            if held is not None:
                guard.run(self._after, held, _sets_to_none(*args, **kwargs))
            return result

        return zero_grad

    def _before_optimizers(self, optimizer: Optimizer, frame: FrameType) -> _Held:
        training = self._training
        location = training.locations.of(frame)
        self._sync(frame)
        known = training.optimizers.of(optimizer)
        return _held(location, known.entries, known.index, known.name)

    def _before_modules(self, module: nn.Module, frame: FrameType) -> _Held:
        training = self._training
        location = training.locations.of(frame)
        self._sync(frame)
        # FSDP replaces parameters by gathered weights, but gradients belong to the shards.
        found = map(training.gradient_state.add, parameters_of(module))
        subject = receiver(location.call()) or type(module).__name__
        return _held(location, [entry for entry in found if entry is not None], None, subject)

    def _sync(self, frame: FrameType) -> None:
        if not self._is_within_backward:
            self._training.sync_weights(frame)

    @property
    def _is_within_backward(self) -> bool:
        steps = self._training.steps
        return steps is not None and steps.is_within_backward

    def _after(self, held: _Held, set_to_none: bool) -> None:
        # A running backward still writes the other gradients.
        self._training.gradient_state.zeroed(held.entries if self._is_within_backward else None)
        self._training.event_log.note(
            "zero",
            held.location,
            named(
                ZeroEvent,
                parameters=float(held.parameters),
                unspent=float(held.unspent),
                set_to_none=float(set_to_none),
            ),
            optimizer=held.optimizer,
            subject=held.subject,
        )


def _held(location: Location, entries: list[Entry], optimizer: int | None, subject: str) -> _Held:
    return _Held(
        location,
        entries,
        sum(entry.state != EMPTY for entry in entries),
        sum(entry.state == UNSPENT and not entry.is_touched for entry in entries),
        optimizer,
        subject,
    )


def _sets_to_none(set_to_none: bool = True) -> bool:
    return set_to_none
