"""Interface between a recorded training and what observes its process among other ranks."""

from types import FrameType
from typing import Protocol

from torch.optim import Optimizer

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
