"""Compares the steps of optimizers with those before: repetitions, and changes to capture."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType

from torch.optim import Optimizer

from gradscope.capture.training.event_log import Number
from gradscope.capture.training.optimizers import Known
from gradscope.capture.training.pacing.positions import Position
from gradscope.capture.training.state import TrainingState
from gradscope.capture.training.steps.measurements import Measured
from gradscope.capture.training.steps.open_steps import calls

_NOWHERE = Position()


_SETTLED = 5
"""Number of steps after which a parameter has a usual state."""


@dataclass(slots=True)
class RepeatedStep:
    """A step of an optimizer that repeats another: the running one, or the last."""

    known: Known
    end: Position = _NOWHERE
    index: int = 0
    """Index of the optimizer, or of the one that it steps with."""
    frame: int = 0
    """`id` of the frame that it runs in."""
    code: CodeType | None = None

    def is_around(self, frame: FrameType) -> bool:
        """Return whether it is a caller of a frame."""
        return calls(self.frame, self.code, frame)


class Repetitions:
    """The steps of optimizers that repeat others. Nothing of them is read but single numbers."""

    def __init__(self, training: TrainingState) -> None:
        self._training = training
        self._patterns, self._gradients = training.pace.patterns, training.pace.sentinels.gradients
        self._steps: dict[int, RepeatedStep] = {}
        """By `id` of the optimizer."""
        self.running: RepeatedStep | None = None
        """The running step, if it repeats another."""

    def begins(self, optimizer: Optimizer, has_closure: bool, frame: FrameType) -> bool:
        """Return whether a step that begins, or the one that calls it, repeats another.

        Args:
            optimizer: The optimizer.
            has_closure: Whether the step calls a closure.
            frame: Frame of its caller.
        """
        running, training, patterns = self.running, self._training, self._patterns
        if training.steps_in_repeated_backward is not None:
            training.steps_in_repeated_backward += 1
            return True
        if running is not None and running.known.optimizer() is not optimizer:
            if running.is_around(frame):
                return True
            self.running = None  # ended by an exception
        if patterns.position is None:
            return False
        # A closure may run any number of backward passes, which a comparison cannot foresee.
        if not has_closure and self._is_expected(optimizer, frame):
            return True
        training.record_in_full()
        return False

    def _is_expected(self, optimizer: Optimizer, frame: FrameType) -> bool:
        """Return whether a step is what is expected next, and the checked gradient is finite."""
        step = self._steps.get(id(optimizer))
        if step is None or step.known.optimizer() is not optimizer:
            step = self._made(optimizer)
            if step is None:
                return False
        known, patterns = step.known, self._patterns
        here = patterns.position
        index = known.index if known.joined is None else known.joined
        end = patterns.repeats("step", index, frame)
        # Of several that step together, the one that counts is called elsewhere.
        if end is None and self._training.optimizers.is_joined(index):
            end = patterns.end_by(index)
        if end is None:
            return False
        gradient = self._gradients.get(index)
        if end.step is None or not (gradient is None or gradient.is_finite()):
            patterns.position = here
            self._training.pace.measures = True  # all gradients
            return False
        step.end, step.index = end, index
        step.frame, step.code = id(frame), frame.f_code
        self.running = step
        return True

    def _made(self, optimizer: Optimizer) -> RepeatedStep | None:
        known = self._training.optimizers.own(optimizer)
        if known is None:
            return None
        step = self._steps[id(optimizer)] = RepeatedStep(known)
        return step


class GradientChanges:
    """Compares each step of an optimizer with those before."""

    def __init__(self) -> None:
        self._had: dict[int, tuple[bool, int]] = {}
        """By `id` of a parameter's entry: whether it had a non-zero gradient, and for how many
        consecutive steps."""
        self._steps: dict[int, int] = {}
        """By optimizer: number of its steps that were compared."""
        self._broken: set[int] = set()
        """Optimizers with non-finite gradients in their last step."""
        self._has_stale: dict[int, bool] = {}
        """By optimizer: whether its last step used gradients that an earlier one had used."""
        self._reached: dict[object, tuple[int, int]] = {}
        """By line of a backward: number of parameters it last reached, and how often in a row."""

    def has_new(
        self, optimizer: int, numbers: Mapping[str, Number], measured: Sequence[Measured] | None
    ) -> bool:
        """Return whether a gradient is non-finite, or newly missing, present or stale.

        This covers parts of a model that die, are frozen or unfrozen, join an optimizer later, or
        are replaced, so that nothing clears the gradients that the optimizer holds.

        Args:
            optimizer: Index of the optimizer that stepped.
            numbers: Statistics of its step.
            measured: Its parameters; None in a step without measurements.
        """
        has_stale = bool(numbers.get("stale"))
        # Stale gradients in the first step were there before the recording.
        is_stale = has_stale and not self._has_stale.get(optimizer, True)
        self._has_stale[optimizer] = has_stale
        if measured is None:
            return is_stale
        was_broken = optimizer in self._broken
        is_broken = not math.isfinite(float(numbers.get("norm", 0.0)))
        (self._broken.add if is_broken else self._broken.discard)(optimizer)
        made = self._steps[optimizer] = self._steps.get(optimizer, 0) + 1
        changed = [self._is_changed(one, is_late=made > _SETTLED) for one in measured]
        return is_stale or (is_broken and not was_broken) or any(changed)

    def reaches_others(self, line: object, reached: int) -> bool:
        """Return whether a backward reaches another number of parameters than it used to.

        This covers parts that are unfrozen, or put in place of others, and are in no optimizer.

        Args:
            line: Line that called the backward.
            reached: Number of parameters that got a gradient.
        """
        before, times = self._reached.get(line, (reached, 0))
        self._reached[line] = (reached, times + 1 if reached == before else 1)
        return reached != before and times >= _SETTLED

    def _is_changed(self, one: Measured, *, is_late: bool) -> bool:
        has, known = bool(one.gradient), self._had.get(id(one.entry))
        if known is None:
            self._had[id(one.entry)] = (has, 1)
            return is_late
        had, times = known
        self._had[id(one.entry)] = (has, times + 1 if has == had else 1)
        return has != had and times >= _SETTLED
