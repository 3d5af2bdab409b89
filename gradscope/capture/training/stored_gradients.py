"""Which gradients of a run are kept, beside their norms."""

from dataclasses import dataclass

from gradscope.capture.step.stored_gradients import Kept, keep
from gradscope.capture.training.gradient_state import Entry
from gradscope.recording.stored_gradient import KeepMode

KeptEntry = tuple[Entry, Kept | None]
"""None stands for a gradient whose elements cannot be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """How the gradients of some steps are kept, as the optimizer sees them.

    Counted for each optimizer by itself: where two take turns, every hundredth step of both may be
    the first one's.
    """

    mode: KeepMode = "none"
    every: int = 100

    def is_due(self, made: int) -> bool:
        """Return whether those of an optimizer's next step are; `made` is how many it has made."""
        return self.mode != "none" and made % self.every == 0

    def kept(self, entries: list[Entry], scale: float) -> list[KeptEntry]:
        """Keep the gradients of an optimizer's parameters.

        Args:
            entries: The parameters.
            scale: By which the optimizer divides their gradients itself.
        """
        found = [
            (entry, parameter.grad)
            for entry in entries
            if (parameter := entry.parameter()) is not None and parameter.grad is not None
        ]
        kept = keep([gradient for _, gradient in found], self.mode, scale=scale)
        return [(entry, one) for (entry, _), one in zip(found, kept, strict=True)]
