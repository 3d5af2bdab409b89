"""Interfaces between a recorded training and what observes its ranks and its own steps."""

from types import FrameType
from typing import Protocol

from torch.autograd.graph import Node
from torch.optim import Optimizer

from gradscope.capture.training.gradient_state import Entry
from gradscope.frozen import dataclass
from gradscope.recording.evidence.ranks import RankEvent


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
