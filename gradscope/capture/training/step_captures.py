"""Interfaces between a recorded training and what observes its steps and its ranks."""

from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Protocol

from torch import Tensor
from torch.autograd.graph import Node
from torch.optim import Optimizer

from gradscope.capture.training.event_log import Number
from gradscope.capture.training.gradient_state import Entry
from gradscope.capture.training.locations import Location
from gradscope.frozen import dataclass
from gradscope.recording.evidence.failures import CustomFunctionRecord
from gradscope.recording.evidence.ranks import RankEvent
from gradscope.recording.records import CapturedStep


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a backward."""

    root: Tensor
    location: Location
    """Location of its call."""
    subject: str
    """Tensor that it starts from, as written there."""
    scale: Number | None
    """Scale of a gradient scaler on the root; None if it is not scaled."""
    loss: Number | None
    """Value of the root without that scale; None if it is no number."""


class StepCaptures(Protocol):
    """Captures the backward passes of some steps, which it chooses itself."""

    reason: str | None
    """Why no more steps are captured; None while some may be."""

    @property
    def has_found(self) -> bool:
        """Whether there is a captured step that was not taken."""

    @property
    def is_open(self) -> bool:
        """Whether the running step is being captured."""

    def start(self) -> None:
        """Start: the first step may be captured."""

    def stop(self) -> None:
        """Stop, and remove every hook."""

    def before_backward(self, start: Start, *, readable: bool) -> None:
        """Prepare to capture the backward that is about to run.

        Args:
            start: The start of the backward.
            readable: False if hooks may transform the saved tensors of its graph.
        """

    def before_several(self, roots: Iterable[Tensor], location: Location) -> None:
        """Record the graphs of several losses with one backward, which is not captured."""

    def backward_repeated(self, location: Location, subject: str, order: int) -> None:
        """Record a backward of which nothing was recorded when it started.

        Args:
            location: Location of its call.
            subject: Tensor that it started from, as written there.
            order: Index of its event in the step.
        """

    def after_backward(self, order: int) -> None:
        """Capture the gradients that it left; `order` is the index of its event in the step."""

    def failed_backward(self) -> None:
        """Discard a backward that raised an exception."""

    def gradients_broke(self, broken: Iterable[Tensor], finite: Iterable[Tensor]) -> None:
        """Record non-finite gradients before an optimizer uses them.

        Args:
            broken: Parameters with non-finite gradients.
            finite: Parameters with finite gradients.
        """

    def optimizer_made(self, index: int) -> None:
        """Add an optimizer, by its index."""

    def steps_with(self, index: int) -> None:
        """Record that an optimizer's steps are part of another's."""

    def step_begins(self) -> None:
        """Record that an optimizer is about to step, without running the script's code."""

    def step_ended(self, index: int, parameters: Iterable[Tensor], location: Location) -> None:
        """Record that an optimizer has stepped.

        Args:
            index: Index of the optimizer.
            parameters: Parameters that it changed; read only during a capture.
            location: Location of the call of its step.
        """

    def stepped_by_hand(self) -> None:
        """Record that the script itself has changed its weights."""

    def steps_repeated(self, optimizers: Sequence[int | None]) -> None:
        """Record steps that repeated others.

        Args:
            optimizers: By step: index of the optimizer that made it; None for a manual step.
        """

    def open_if_due(self) -> None:
        """Capture the next step if a capture is due."""

    def rests(self) -> float:
        """Return the number of next steps in which no capture is due, except by the budget."""

    def step_skipped(self) -> None:
        """Record that a gradient scaler skipped a step."""

    def trouble(self) -> None:
        """Capture the next steps because of a problem."""

    def give_up(self, reason: str) -> None:
        """Stop capturing steps."""

    def see_end(self, error: BaseException) -> None:
        """Record the exception that ended the script, with its traceback."""

    def check_functions(self) -> Sequence[CustomFunctionRecord]:
        """Check the custom functions of a script that is over, whose code may run now."""

    def take(self, step: int) -> tuple[CapturedStep, ...]:
        """Return the captured steps since the last call, as those of a step."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Records that are new since the last call."""

    records: tuple[object, ...]
    events: tuple[tuple[int, RankEvent], ...]
    """New and changed events with their indices."""


class RankObserver(Protocol):
    """Records what this process does with the other ranks of its job."""

    is_on: bool
    """Whether there are other ranks."""

    def backward_begins(self, outputs: object, frame: FrameType) -> None:
        """Record that a backward begins.

        Args:
            outputs: The tensors that it starts from.
            frame: Frame of its caller.
        """

    def backward_ended(self) -> None:
        """Record that a backward has ended."""

    def enter_step(self, optimizer: Optimizer, frame: FrameType) -> None:
        """Record that an optimizer is about to step.

        Args:
            optimizer: The optimizer.
            frame: Frame of its caller.
        """

    def leave_step(self, optimizer: Optimizer) -> None:
        """Record that an optimizer has stepped."""

    def take(self) -> Taken:
        """Return what is new since the last call."""

    def finish(self) -> None:
        """Record that the training has ended."""


class ManualSteps(Protocol):
    """Finds the changes of weights that no optimizer made."""

    def find_loose(self, root: Node, frame: FrameType) -> None:
        """Add the leaves of a graph that are in no model, if the script has no model.

        Args:
            root: The graph's root.
            frame: Frame of the backward's caller.
        """

    def measure(self) -> None:
        """Measure the gradients that a step would use now."""

    def changed(self) -> list[Entry]:
        """Return the parameters whose values differ from those at the measurement."""

    def note(self, entries: list[Entry], frame: FrameType | None) -> None:
        """Record a step.

        Args:
            entries: The parameters that the script changed.
            frame: Frame of the call that follows the step.
        """
