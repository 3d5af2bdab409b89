"""Compares the steps of optimizers with those that they are expected to repeat."""

from dataclasses import dataclass
from types import CodeType, FrameType

from torch.optim import Optimizer

from gradscope.capture.training.optimizers import Known
from gradscope.capture.training.pacing.positions import Position
from gradscope.capture.training.state import TrainingState
from gradscope.capture.training.steps.open_steps import calls

_NOWHERE = Position()


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
