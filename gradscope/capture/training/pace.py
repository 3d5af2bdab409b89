"""Decides how much of each step is recorded, within the cost budget."""

import math
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import TYPE_CHECKING
from weakref import ref

import torch
from torch import Tensor
from torch._C import DisableTorchFunction, _len_torch_dispatch_stack

from gradscope.capture.reading import few_numbers, is_plain
from gradscope.capture.training.budget import FIRST, Budget, WindowKind
from gradscope.capture.training.event_log import Event, EventLog, Number
from gradscope.capture.training.gradient_state import GradientState
from gradscope.capture.training.locations import Locations
from gradscope.capture.training.step_patterns import Position, StepPatterns
from gradscope.capture.training.step_writer import Measured
from gradscope.recording.evidence.optimizers import WatchCost
from gradscope.recording.repeated_steps import RepeatedSteps

if TYPE_CHECKING:
    from typing_extensions import TypeIs

_FORCED = 5
"""Number of steps whose norms are measured after a problem."""

_TOGETHER = 0.1
"""Seconds for which repeated steps are held before they are written."""

_MOST_SOURCES = 65_536

_FIRST_LAYERS = 4

_SMALL, _LARGEST = 64, 4_096
"""Number of elements of the gradient checked in each step. It has at most the first number if one
of the first layers' gradients has, otherwise at most the second."""


class Pace:
    """Decides how much of each step is recorded.

    Its calls are either only compared, or recorded in full with or without gradients.

    Args:
        budget: The cost budget.
        every: Measure every Nth step; None for as many as the budget allows.
        write: Receives steps that repeat others.
    """

    def __init__(
        self,
        gradient_state: GradientState,
        event_log: EventLog,
        locations: Locations,
        budget: Budget,
        *,
        every: int | None,
        write: Callable[[RepeatedSteps], None],
    ) -> None:
        self._event_log, self._every, self._write = event_log, every, write
        self.budget = budget
        self.patterns = StepPatterns(gradient_state, event_log, locations)
        self.steps = 0
        """Number of steps so far, of every kind."""
        self.counts: dict[WindowKind, int] = {}
        self.measures = True
        """Whether the gradients of the running step are measured."""
        self._kind: WindowKind = "measured"
        self._forced = 0
        self._may_join = False
        """Whether the running step may turn out to repeat another."""
        self._flushed = time.perf_counter()
        self._first = 0
        self._sources: dict[int, int] = {}
        """By repeated step: index in the block that is held."""
        self._choices, self._losses, self._rates = array("H"), array("d"), array("d")
        self._sentinels: dict[int, ref[Tensor]] = {}
        """By optimizer: a parameter whose gradient shows whether all are finite."""
        self._moving: _Moving | None = None
        self._free: float = 0
        """Number of coming steps without decisions, if they repeat others."""
        self._passed: list[int | None] = []
        """For each of them that is over: index of the optimizer that stepped."""
        self.take_passed: Callable[[Sequence[int | None]], None]
        """Receives steps that repeated others, as indices of their optimizers."""

    @property
    def repeats_steps(self) -> bool:
        """Whether steps may be recorded as repetitions of others."""
        return not self.budget.is_unlimited

    def is_repeating(self) -> bool:
        """Return whether the running step repeats another so far."""
        return self.patterns.position is not None

    def is_elsewhere(self) -> bool:
        """Return whether a thread other than this one makes a step that repeats another."""
        return self.is_repeating() and not self.patterns.is_here()

    def force(self) -> None:
        """Measure the next steps, whatever it costs."""
        self._forced = _FORCED

    def noted(self, event: Event) -> None:
        """Process an event of a step that is recorded in full."""
        if not self.repeats_steps:
            return
        if (
            self._may_join
            and event.kind == "backward"
            and self.patterns.join(self._event_log.events)
        ):
            self._may_join, self._kind = False, "repeated"
            self._event_log.events.clear()
        else:
            self.patterns.noted(event)

    def recorded(self, step: int, events: list[Event]) -> None:
        """Process a step that was recorded in full."""
        if self.repeats_steps:
            self.patterns.recorded(step, events)

    def first_step(self, *, is_captured: bool) -> None:
        """Start with the first step."""
        self._kind = _kind(is_captured, self.measures)

    def next_step(self, *, is_captured: bool, may_repeat: bool, within_call: bool) -> bool:
        """Finish a step and start the next; return whether it may repeat another.

        Args:
            is_captured: Whether the next step is captured.
            may_repeat: False if the next step must be recorded in full.
            within_call: Whether it starts within a call that is recorded in full. Whether it
                repeats another is then known only afterwards.
        """
        kind = self._kind
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if kind == "repeated":
            self.budget.repeated_steps_ended(1)
        else:
            self.budget.step_ended(kind)
        self.steps += 1
        self.measures = self._is_measured() or (is_captured and self._every is None)
        self._forced = max(0, self._forced - 1)
        may_repeat &= self.repeats_steps and not (self.measures or is_captured)
        self._may_join = may_repeat and within_call
        begins = self.patterns.begin(may_repeat=may_repeat and not within_call)
        self._kind = "repeated" if begins else _kind(is_captured, self.measures)
        return begins

    def _is_measured(self) -> bool:
        if self._every is not None:
            return self.steps % self._every == 0
        return self.steps < FIRST or self._forced > 0 or self.budget.affords_norms()

    def catch_up(self, resumed: Callable[[], None]) -> None:
        """Prepare for a step that is recorded in full after steps that were only compared."""
        if self.patterns.catch_up():
            resumed()

    def unfold(self) -> None:
        """Record the rest of the running step in full."""
        self.settle()
        self.patterns.unfold()
        self._kind = _kind(is_captured=False, measures=self.measures)

    def repeats_backward(self, detail: int, outputs: object, frame: FrameType) -> bool:
        """Return whether a backward is what the step is expected to do, from a finite loss.

        Args:
            detail: Whether it keeps its graph, and creates one.
            outputs: Tensors to start from.
            frame: Frame of its caller.
        """
        here = self.patterns.position
        position = self.patterns.repeats("backward", detail, frame)
        if position is None or not position.has_loss:
            return position is not None
        loss = _loss(outputs)
        if loss is None:
            self.patterns.position, self.measures = here, True
            return False
        self.patterns.losses.append(loss)
        return True

    def unscale_loss(self, scale: Callable[[], Number]) -> None:
        """Divide the last loss by the scale of a gradient scaler, if it was scaled."""
        position, losses = self.patterns.position, self.patterns.losses
        if position is None or not position.has_loss or math.isnan(losses[-1]):
            return
        if position.events[-1].numbers.get("scaled"):
            losses[-1] /= float(scale())

    def repeats_step(
        self, index: int, frame: FrameType, is_joined: Callable[[int], bool]
    ) -> Position | None:
        """Return the end of the sequence if an optimizer's step is what is expected.

        Args:
            index: Index of the optimizer, or of the one that it steps with.
            frame: Frame of its caller.
            is_joined: Whether several step together: the one that counts is called elsewhere.
        """
        here = self.patterns.position
        position = self.patterns.repeats("step", index, frame)
        if position is None and is_joined(index):
            position = self.patterns.end_by(index)
        if position is not None and position.step is not None and self._is_finite(index):
            return position
        self.patterns.position = here
        # If a gradient is not finite, all are measured.
        self.measures |= position is not None
        return None

    def watch_gradient(self, index: int, measured: Iterable[Measured]) -> None:
        """Choose the gradient to check in each repeated step of an optimizer.

        Non-finite values in a backward propagate to the first layers, so these are preferred.
        """
        if not self.repeats_steps:
            return
        read = (
            (one.numel > _SMALL, order, one.entry.parameter)
            for order, one in enumerate(measured)
            if one.gradient
            and one.numel <= _LARGEST
            and (parameter := one.entry.parameter()) is not None
            and _is_readable(parameter.grad)
        )
        first = list(islice(read, _FIRST_LAYERS))
        _, _, found = min(first, default=(True, 0, None))
        if found is None:
            self._sentinels.pop(index, None)
        else:
            self._sentinels[index] = found

    def watch_weight(self, parameter: Tensor) -> None:
        """Check a parameter in order to detect manual changes of the weights."""
        before, now = self._moving, _Moving(ref(parameter), parameter._version, _total(parameter))
        same = before is not None and before.parameter() is parameter
        now.is_silent = same and before is not None and before.version == now.version
        self._moving = now

    def has_moved(self) -> bool:
        """Return whether the script has changed its weights since the last call."""
        moving = self._moving
        parameter = None if moving is None else moving.parameter()
        if moving is None or parameter is None:
            return False
        if not moving.is_silent:
            before, moving.version = moving.version, parameter._version
            return before != moving.version
        total, moving.total = moving.total, _total(parameter)
        return total != moving.total

    def _is_finite(self, index: int) -> bool:
        reference = self._sentinels.get(index)
        if reference is None:
            return True
        parameter = reference()
        gradient = None if parameter is None else parameter.grad
        if _len_torch_dispatch_stack():  # the script would see it
            return True
        with DisableTorchFunction():
            if gradient is not None and not gradient.requires_grad:
                few = few_numbers(gradient, _SMALL)
                if few is not None:
                    return math.isfinite(sum(few))
            return _is_readable(gradient) and math.isfinite(gradient.sum().item())

    def goes_on(self, end: Position, optimizer: int | None, rate: object) -> bool:
        """Accept that the running step repeated another to its end, and start the next.

        Return False, without an effect, if a decision is due before that.

        Args:
            end: Position of the step's end.
            optimizer: Index of the optimizer that stepped; None for a manual step.
            rate: Learning rate.
        """
        passed = self._passed
        if len(passed) >= self._free or not self._choices or end.step not in self._sources:
            return False
        if not self.patterns.may_go_on(end):
            return False
        self._hold(end, self._sources[end.step], rate)
        self.patterns.begin(may_repeat=True)
        passed.append(optimizer)
        return True

    def _hold(self, end: Position, source: int, rate: object) -> None:
        """Add a step that repeated another to the block that is held."""
        self._choices.append(source)
        self._losses.extend(self.patterns.losses)
        self._rates.append(float(rate) if isinstance(rate, float | int) else math.nan)
        self.patterns.ended(end)

    def rest(self, steps: float) -> None:
        """Skip decisions for a number of steps, as long as they repeat others."""
        is_free = self._every is None and not self._forced and self.steps >= FIRST
        self._free = min(steps, self.budget.together - 1) if is_free else 0

    def settle(self) -> None:
        """Process the steps without decisions."""
        self._free = 0
        if not self._passed:
            return
        passed, self._passed = self._passed, []
        self.steps += len(passed)
        self.counts["repeated"] = self.counts.get("repeated", 0) + len(passed)
        self.budget.repeated_steps_ended(len(passed))
        self.take_passed(passed)

    def repeated(self, end: Position, rate: object) -> None:
        """Process a step that repeated another to its end."""
        if end.step is None:
            return
        source = self._sources.setdefault(end.step, len(self._sources))
        if not self._choices:
            self._first = self.steps
        self._hold(end, source, rate)
        if time.perf_counter() - self._flushed > _TOGETHER or len(self._sources) == _MOST_SOURCES:
            self.flush()

    def flush(self) -> None:
        """Write the repeated steps that are held."""
        now = time.perf_counter()
        if self._choices:
            began = now
            self._write(
                RepeatedSteps(
                    first=self._first,
                    sources=tuple(self._sources),
                    choices=self._choices.tobytes(),
                    losses=self._losses.tobytes(),
                    rates=self._rates.tobytes(),
                    began=self._event_log.seconds_at(self._flushed),
                    ended=self._event_log.seconds_at(now),
                )
            )
            self._sources = {}
            self._choices, self._losses, self._rates = array("H"), array("d"), array("d")
            self.budget.spend(time.perf_counter() - began)
        self._flushed = now

    def cost(self) -> WatchCost:
        """Return the cost of recording, and how much was recorded."""
        self.settle()
        count = self.counts.get
        return WatchCost(
            budget=self.budget.share,
            share=self.budget.spent_share,
            seconds=self.budget.spent,
            steps=self.steps,
            measured=count("measured", 0) + count("captured", 0),
            captured=count("captured", 0),
            repeated=count("repeated", 0),
        )


@dataclass(slots=True)
class _Moving:
    """A parameter that the script itself changes in each step."""

    parameter: ref[Tensor]
    version: int
    total: float
    """Sum of its elements."""
    is_silent: bool = False
    """Whether its version does not change, as with `p.data -= …`."""


def _total(parameter: Tensor) -> float:
    """Return the sum of a parameter's elements, 0 if they are unreadable."""
    with DisableTorchFunction(), torch.no_grad():
        return float(parameter.sum()) if is_plain(parameter) else 0.0


def _is_readable(gradient: object) -> "TypeIs[Tensor]":
    """Return whether a gradient in main memory can be summed without side effects."""
    if type(gradient) is not Tensor or not gradient.is_cpu or gradient.requires_grad:
        return False
    return is_plain(gradient)


def _kind(is_captured: bool, measures: bool) -> WindowKind:
    if is_captured:
        return "captured"
    return "measured" if measures else "events"


def is_broken(number: object) -> bool:
    """Return whether a number in main memory is not finite."""
    value = number if isinstance(number, float) else _read(number)
    return value is not None and not math.isfinite(value)


def _loss(outputs: object) -> float | None:
    """Return a loss in main memory, NaN if it lies elsewhere; None if it is not finite."""
    loss = outputs[0] if isinstance(outputs, tuple | list) and len(outputs) == 1 else None
    value = _read(loss)
    if value is None:
        is_far = type(loss) is Tensor and loss.device.type not in ("cpu", "meta")
        return math.nan if is_far else None
    return value if math.isfinite(value) else None


def _read(number: object) -> float | None:
    """Return the only number of a tensor in main memory; None if the script would notice."""
    if type(number) is not Tensor or _len_torch_dispatch_stack():
        return None
    with DisableTorchFunction():
        found = few_numbers(number, 1)
    return None if found is None else found[0]
