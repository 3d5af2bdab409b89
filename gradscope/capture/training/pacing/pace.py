"""Decides how much of each step is recorded, within the cost budget."""

import math
import time
from array import array
from collections.abc import Callable, Sequence

from gradscope.capture.training.event_log import Event, EventLog, Number
from gradscope.capture.training.gradient_state import GradientState
from gradscope.capture.training.locations import Locations
from gradscope.capture.training.pacing.budget import FIRST, Budget, WindowKind
from gradscope.capture.training.pacing.positions import Position
from gradscope.capture.training.pacing.sentinels import Sentinels
from gradscope.capture.training.pacing.step_patterns import StepPatterns
from gradscope.recording.evidence.training import WatchCost
from gradscope.recording.repetitions import RepeatedSteps

_FORCED = 5
"""Number of steps whose norms are measured after a problem."""

_TOGETHER = 0.1
"""Seconds for which repeated steps are held before they are written."""

_MOST_SOURCES = 65_536


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
        self.sentinels = Sentinels()
        self._free: float = 0
        """Number of coming steps without decisions, if they repeat others."""
        self._passed: list[tuple[Position, int | None, float]] = []
        """For each of them that is over: its end, the optimizer's index, and the learning rate."""
        self.take_passed: Callable[[Sequence[int | None]], None]
        """Receives steps that repeated others, as indices of their optimizers."""

    @property
    def repeats_steps(self) -> bool:
        """Whether steps may be recorded as repetitions of others."""
        return not self.budget.is_unlimited

    def running_step(self) -> int:
        """Index of the running step."""
        return self.steps + len(self._passed)

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
            self._may_join, self._kind, self._free = False, "repeated", 0
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
        # A captured step costs far more than its norms.
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
        if self.steps < FIRST or self._forced > 0:
            return True
        if not self.budget.affords_norms():
            return False
        # Optimizers may step in turn: without the next steps, one of them might never be measured.
        self._forced = len(self.sentinels.gradients)
        return True

    def catch_up(self, resumed: Callable[[], None]) -> None:
        """Prepare for a step that is recorded in full after steps that were only compared."""
        if self.patterns.catch_up():
            resumed()

    def unfold(self) -> None:
        """Record the rest of the running step in full."""
        self.settle()
        self.patterns.unfold()
        self._kind = _kind(is_captured=False, measures=self.measures)

    def unscale_loss(self, scale: Callable[[], Number]) -> None:
        """Divide the last loss by the scale of a gradient scaler, if it was scaled."""
        position, losses = self.patterns.position, self.patterns.losses
        if position is None or not position.has_loss or math.isnan(losses[-1]):
            return
        if position.events[-1].numbers.get("scaled"):
            losses[-1] /= float(scale())

    def goes_on(self, end: Position, optimizer: int | None, rate: object) -> bool:
        """Accept that the running step repeated another to its end, and start the next.

        Return False, without an effect, if a decision is due before that.

        Args:
            end: Position of the step's end.
            optimizer: Index of the optimizer that stepped; None for a manual step.
            rate: Learning rate.
        """
        passed, following = self._passed, end.following
        if len(passed) >= self._free or following is None or end.step not in self._sources:
            return False
        patterns = self.patterns
        if losses := patterns.losses:
            self._losses.extend(losses)
            losses.clear()
        # This runs in every repeated step: a check of the type is cheaper than the call.
        passed.append((end, optimizer, rate if type(rate) is float else _number(rate)))
        patterns.position = following
        return True

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
        for end, _, rate in passed:
            if end.step is not None:
                self._choices.append(self._sources[end.step])
                self._rates.append(rate)
        self.patterns.ended(passed[-1][0])
        self.steps += len(passed)
        self.counts["repeated"] = self.counts.get("repeated", 0) + len(passed)
        self.budget.repeated_steps_ended(len(passed))
        self.take_passed([optimizer for _, optimizer, _ in passed])

    def repeated(self, end: Position, rate: object) -> None:
        """Process a step that repeated another to its end."""
        if end.step is None:
            return
        source = self._sources.setdefault(end.step, len(self._sources))
        if not self._choices:
            self._first = self.steps
        self._choices.append(source)
        self._losses.extend(self.patterns.losses)
        self._rates.append(_number(rate))
        self.patterns.ended(end)
        # An index of a source has two bytes.
        if time.perf_counter() - self._flushed > _TOGETHER or len(self._sources) == _MOST_SOURCES:
            self.flush()

    def flush(self) -> None:
        """Write the repeated steps that are held."""
        if self._passed:
            self.settle()
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

    def in_use(self) -> set[int]:
        """Return the recorded steps that repeated ones may refer to from now on."""
        # Thinning a long recording must leave the steps that others refer to.
        return self.patterns.steps() | set(self._sources)

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


def _number(rate: object) -> float:
    """Return a learning rate, NaN if it is no number of Python's."""
    return float(rate) if isinstance(rate, float | int) else math.nan


def _kind(is_captured: bool, measures: bool) -> WindowKind:
    if is_captured:
        return "captured"
    return "measured" if measures else "events"
