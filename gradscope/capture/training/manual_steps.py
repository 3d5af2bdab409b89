"""Interface between a recorded training and what observes the steps that a script makes itself."""

from types import FrameType
from typing import Protocol

from torch.autograd.graph import Node

from gradscope.capture.training.gradient_state import Entry


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
