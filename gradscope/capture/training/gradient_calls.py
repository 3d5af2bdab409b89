"""Records where a script zeroes gradients, and where its scalers scale and unscale them."""

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from gradscope.capture.compiler import is_traced
from gradscope.capture.naming import parameters_of
from gradscope.capture.source.lines import created
from gradscope.capture.step.graph import tensors
from gradscope.capture.training.backwards import Backwards
from gradscope.capture.training.event_log import Number, known, number, unread
from gradscope.capture.training.gradient_state import EMPTY, UNSPENT, Entry
from gradscope.capture.training.guard import Function, Patches
from gradscope.capture.training.locations import Location, receiver
from gradscope.capture.training.state import TrainingState
from gradscope.capture.training.steps.steps import Steps
from gradscope.frozen import dataclass
from gradscope.recording.events import (
    ScalerStepEvent,
    ScalerUpdateEvent,
    UnscaleEvent,
    ZeroEvent,
    named,
)

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

    def __init__(self, training: TrainingState, steps: Steps) -> None:
        self._training, self._steps = training, steps

    def install(self, patches: Patches) -> None:
        """Start observing."""
        # On the base classes: a subclass that overrides it mostly calls it.
        patches.wrap(Optimizer, "zero_grad", partial(self._wrap, self._before_optimizers))
        patches.wrap(nn.Module, "zero_grad", partial(self._wrap, self._before_modules))

    def _wrap(self, before: Callable[[Owner, FrameType], _Held], original: Function) -> Function:
        training = self._training
        guard = training.guard

        def begin(owner: Owner, frame: FrameType) -> _Held:
            held = before(owner, frame)
            # After the gradients were read: no other thread may read them from here on.
            guard.enter_change()
            return held

        def zero_grad(owner: Owner, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            # Before anything else: the compiler follows a method, and warns of `sys._getframe`.
            if is_traced() or not guard.active:
                return original(owner, *args, **kwargs)
            optimizer = owner if isinstance(owner, Optimizer) else None
            if training.repeats("zero", optimizer, sys._getframe(1)):
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
            self._training.spend_evaluated()
            self._training.sync_weights(frame)

    @property
    def _is_within_backward(self) -> bool:
        return self._steps.is_within_backward

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


class Scalers:
    """Observes every gradient scaler."""

    def __init__(self, training: TrainingState, backwards: Backwards, steps: Steps) -> None:
        self._training, self._backwards, self._steps = training, backwards, steps
        self._stepping = 0
        """Number of open calls of `GradScaler.step`, which unscale by themselves."""

    def install(self, patches: Patches) -> None:
        """Start observing."""
        patches.wrap(GradScaler, "scale", self._wrap_scale)
        patches.wrap(GradScaler, "unscale_", self._wrap_unscale)
        patches.wrap(GradScaler, "step", self._wrap_step)
        patches.wrap(GradScaler, "update", self._wrap_update)

    def _is_off(self, scaler: GradScaler) -> bool:
        return is_traced() or not self._training.guard.active or not scaler.is_enabled()

    def _wrap_scale(self, original: Function) -> Function:
        def scale(scaler: GradScaler, outputs: Any) -> Any:  # noqa: ANN401
            scaled = original(scaler, outputs)
            if not self._is_off(scaler):
                self._training.guard.run(self._note_scaled, scaler, scaled)
            return scaled

        return scale

    def _note_scaled(self, scaler: GradScaler, scaled: object) -> None:
        # `scale()` multiplies, so the scaled loss has a node of its own. Its number tells a scaled
        # loss from others when backward starts there or later.
        scale = number(scaler._scale)
        for tensor in tensors(scaled):
            node = tensor.grad_fn
            location = None if node is None else created(node)
            if location is not None and scale is not None:
                # By number: a reference to the node would keep the graph alive.
                self._backwards.scaled[location] = scale

    def _wrap_unscale(self, original: Function) -> Function:
        def unscale_(scaler: GradScaler, optimizer: Optimizer) -> Any:  # noqa: ANN401
            if self._is_off(scaler):
                return original(scaler, optimizer)
            frame, training = sys._getframe(1), self._training
            is_inner = self._stepping > 0
            if training.pace.is_repeating() and (
                is_inner or training.repeats("unscale", optimizer, frame)
            ):
                return original(scaler, optimizer)
            training.guard.run(self._before_unscale, frame)
            result = original(scaler, optimizer)
            training.guard.run(self._after_unscale, scaler, optimizer, frame)
            return result

        return unscale_

    def _before_unscale(self, frame: FrameType) -> None:
        self._training.sync(frame)

    def _after_unscale(self, scaler: GradScaler, optimizer: Optimizer, frame: FrameType) -> None:
        training = self._training
        one = training.optimizers.of(optimizer)
        # `unscale_` divides in place: versions change, but no gradient has arrived.
        for entry in one.entries:
            entry.is_scaled = False
        training.gradient_state.accept()
        # `step` unscales by itself if the script did not. That is no call of the script.
        if not self._stepping:
            location = training.locations.of(frame)
            numbers = known(UnscaleEvent, scale=unread(scaler._scale))
            training.event_log.note(
                "unscale", location, numbers, optimizer=one.index, subject=one.name
            )

    def _wrap_step(self, original: Function) -> Function:
        def step(scaler: GradScaler, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if self._is_off(scaler):
                return original(scaler, optimizer, *args, **kwargs)
            frame, training = sys._getframe(1), self._training
            self._stepping += 1
            # Set by the step that the scaler makes, or does not make.
            self._steps.stepped.discard(id(optimizer))
            if not training.pace.is_repeating():
                training.guard.run(training.sync, frame)
            try:
                result = original(scaler, optimizer, *args, **kwargs)
            finally:
                self._stepping -= 1
            # GradScaler calls `optimizer.step` only if all gradients are finite.
            if id(optimizer) not in self._steps.stepped:
                training.record_in_full()  # a skipped step is no repetition
            if not training.repeats("scaler-step", optimizer, frame):
                training.guard.run(self._after_step, scaler, optimizer, frame)
            return result

        return step

    def _after_step(self, scaler: GradScaler, optimizer: Optimizer, frame: FrameType) -> None:
        training = self._training
        one = training.optimizers.of(optimizer)
        infinite = _found_infinite(scaler, optimizer)
        skipped: Number = float(id(optimizer) not in self._steps.stepped)
        if not skipped and infinite is not None:
            skipped = infinite  # a fused optimizer decides itself whether to skip
        training.gradient_state.accept()
        # A skipped step has used its gradients too: they are not to be accumulated.
        training.gradient_state.spend(one.entries)
        numbers = known(ScalerStepEvent, skipped=unread(skipped), found_inf=unread(infinite))
        location = training.locations.of(frame)
        training.event_log.note(
            "scaler-step", location, numbers, optimizer=one.index, subject=one.name
        )
        if training.captures is not None and id(optimizer) not in self._steps.stepped:
            training.captures.step_skipped()

    def _wrap_update(self, original: Function) -> Function:
        def update(scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            if self._is_off(scaler):
                return original(scaler, *args, **kwargs)
            if self._training.repeats("scaler-update", None, sys._getframe(1)):
                return original(scaler, *args, **kwargs)
            before = self._training.guard.run(number, scaler._scale)
            result = original(scaler, *args, **kwargs)
            self._training.guard.run(self._note_update, scaler, before, sys._getframe(1))
            return result

        return update

    def _note_update(self, scaler: GradScaler, before: object, frame: FrameType) -> None:
        numbers = known(
            ScalerUpdateEvent, scale_before=unread(before), scale_after=unread(scaler._scale)
        )
        self._training.event_log.note("scaler-update", self._training.locations.of(frame), numbers)


def _found_infinite(scaler: GradScaler, optimizer: Optimizer) -> Number | None:
    """Return whether gradients were not finite: 0, or more for every device that found any."""
    # `GradScaler.update` clears these states, so they are read right after the step.
    states = scaler._per_optimizer_states
    found: dict[Any, Tensor] = states[id(optimizer)]["found_inf_per_device"] if states else {}
    return next((number(value) for value in found.values()), None)
