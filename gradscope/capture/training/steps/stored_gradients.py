"""Selects the gradients of a run that are stored in addition to their norms."""

from gradscope.capture.step.stored_gradients import Kept, keep
from gradscope.capture.training.gradient_state import Entry
from gradscope.frozen import dataclass
from gradscope.recording.stored_gradient import KeepMode

StoredEntry = tuple[Entry, Kept | None]
"""None stands for an unreadable gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientStorage:
    """How the gradients of some steps are stored, as the optimizer sees them.

    Steps are counted per optimizer: if two alternate, every 100th step of both together may always
    be that of the first.
    """

    mode: KeepMode = "none"
    every: int = 100

    def is_due(self, made: int) -> bool:
        """Return whether the gradients of an optimizer's next step are due, after `made` steps."""
        return self.mode != "none" and made % self.every == 0

    def kept(self, entries: list[Entry], scale: float) -> list[StoredEntry]:
        """Store the gradients of an optimizer's parameters.

        Args:
            entries: The parameters.
            scale: Divisor that the optimizer itself applies to their gradients.
        """
        found = [
            (entry, parameter.grad)
            for entry in entries
            if (parameter := entry.parameter()) is not None and parameter.grad is not None
        ]
        kept = keep([gradient for _, gradient in found], self.mode, scale=scale)
        return [(entry, one) for (entry, _), one in zip(found, kept, strict=True)]
