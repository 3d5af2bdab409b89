"""What watching a training has cost, and how much of the training was recorded for it."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchCost:
    """The cost of watching a run; a killed process leaves no such record."""

    table: ClassVar[str] = "watch_cost"
    budget: float | None
    """The share of the training's own time that watching may take; None for no limit."""
    share: float | None
    """The share that it took, first steps included; None where no step followed the first."""
    seconds: float
    """That it took."""
    steps: int
    """Number of steps."""
    measured: int
    """Steps whose gradients were measured."""
    captured: int
    """Steps that were captured, tensor by tensor."""
    repeated: int
    """Steps of which nothing was recorded but that they made the same calls as another."""
