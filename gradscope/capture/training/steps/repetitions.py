"""Compares the steps of optimizers with those that they are expected to repeat."""

from dataclasses import dataclass
from types import CodeType, FrameType
from weakref import ref

from torch.optim import Optimizer

from gradscope.capture.training.pacing.positions import Position
from gradscope.capture.training.state import TrainingState
from gradscope.capture.training.steps.open_steps import calls


@dataclass(slots=True)
class RepeatedStep:
    """A running step that repeats another."""

    optimizer: ref[Optimizer]
    end: Position
    index: int
    """Index of the optimizer, or of the one that it steps with."""
    frame: int
    """`id` of the frame that it runs in."""
    code: CodeType

    def is_around(self, frame: FrameType) -> bool:
        """Return whether it is a caller of a frame."""
        return calls(self.frame, self.code, frame)


class Repetitions:
    """The steps of optimizers that repeat others. Nothing of them is read but single numbers."""

    def __init__(self, training: TrainingState) -> None:
        self._training = training
        self.running: RepeatedStep | None = None
        """The running step, if it repeats another."""
        self.in_backward: int | None = None
        """Number of steps by hooks of a backward that repeats another; None if none runs."""

    def begins(self, optimizer: Optimizer, has_closure: bool, frame: FrameType) -> bool:
        """Return whether a step that begins, or the one that calls it, repeats another.

        Args:
            optimizer: The optimizer.
            has_closure: Whether the step calls a closure.
            frame: Frame of its caller.
        """
        if self.in_backward is not None:
            self.in_backward += 1
            return True
        running, training = self.running, self._training
        if running is not None and running.optimizer() is not optimizer:
            if running.is_around(frame):
                return True
            self.running = None  # ended by an exception
        if training.pace.patterns.position is None:
            return False
        known = None if has_closure else training.optimizers.own(optimizer)
        if known is not None:
            index = known.index if known.joined is None else known.joined
            end = training.pace.repeats_step(index, frame, training.optimizers.is_joined)
            if end is not None:
                self.running = RepeatedStep(known.optimizer, end, index, id(frame), frame.f_code)
                return True
        training.record_in_full()
        return False
