"""What a watch of a training asks of those who look at some of its backward passes closely."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from gradscope.capture.training.event_log import Number
from gradscope.capture.training.locations import Location
from gradscope.capture.training.state import TrainingState
from gradscope.recording.meta import Header
from gradscope.recording.records import CapturedStep


@dataclass(frozen=True, slots=True)
class Start:
    """How a backward starts."""

    root: Tensor
    location: Location
    """Where it is called."""
    subject: str
    """What it starts from, as it is written there."""
    scale: Number | None
    """By what a gradient scaler has multiplied the root; None where none has."""
    loss: Number | None
    """The number at the root, without that scale; None where it is none."""


class StepCaptures(Protocol):
    """Looks at the backward passes of some steps, chosen by itself."""

    reason: str | None
    """Why nothing is looked at any more; None while something may be."""

    @property
    def has_found(self) -> bool:
        """Whether there is a look that nobody has taken."""

    @property
    def is_open(self) -> bool:
        """Whether the running step is being captured."""

    def start(self) -> None:
        """Begin: the first step may be looked at."""

    def stop(self) -> None:
        """End, and leave nothing behind."""

    def before_backward(self, start: Start, *, readable: bool) -> None:
        """Prepare to see the backward that is about to run.

        Args:
            start: How it starts.
            readable: False where hooks of anyone's may stand between its graph and what that has
                saved.
        """

    def before_several(self, roots: Iterable[Tensor], location: Location) -> None:
        """Take in the graphs of several losses whose backward is one, and is not looked at."""

    def backward_repeated(self, location: Location, subject: str, order: int) -> None:
        """Take in a backward of which nothing was recorded when it began.

        Args:
            location: Where it was called.
            subject: What it started from, as it is written there.
            order: The place of its event among those of the step.
        """

    def after_backward(self, order: int) -> None:
        """Take in what it left; its event has a place among those of the step."""

    def failed_backward(self) -> None:
        """Let go of it: it raised an exception."""

    def gradients_broke(self, broken: Iterable[Tensor], finite: Iterable[Tensor]) -> None:
        """Take in that gradients are not finite, before an optimizer uses them.

        Args:
            broken: The parameters whose gradients are not.
            finite: Those whose gradients are.
        """

    def optimizer_made(self, index: int) -> None:
        """Take in an optimizer, by its place among those that are known."""

    def steps_with(self, index: int) -> None:
        """Take in that an optimizer makes no steps of its own: they are part of another's."""

    def step_begins(self) -> None:
        """Take in that an optimizer is about to step, and runs nothing of the script's own."""

    def step_ended(self, index: int, parameters: Iterable[Tensor], location: Location) -> None:
        """Take in that an optimizer has made a step.

        Args:
            index: Its place among those that are known.
            parameters: That it has changed; read only while something is looked at.
            location: Where its step was called.
        """

    def stepped_by_hand(self) -> None:
        """Take in that the script itself has changed its weights."""

    def steps_repeated(self, optimizers: Sequence[int | None]) -> None:
        """Take in steps that have repeated others.

        Args:
            optimizers: By step: the index of the one that has made it; None for a step by hand.
        """

    def open_if_due(self) -> None:
        """Look at the next step if it is time for it."""

    def rests(self) -> int:
        """Return before how many of the next steps no look is due, but for the budget's sake."""

    def step_skipped(self) -> None:
        """Take in that a gradient scaler has left a step out."""

    def trouble(self) -> None:
        """Take in that something is to be seen: look at the next steps."""

    def give_up(self, reason: str) -> None:
        """Look at nothing more."""

    def see_end(self, error: BaseException) -> None:
        """Take in the exception that has ended the script, with its traceback."""

    def take(self, step: int) -> tuple[CapturedStep, ...]:
        """Return the looks since the last call, as those of a step."""


MakeCaptures = Callable[[TrainingState, Header], StepCaptures]
