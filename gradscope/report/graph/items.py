"""What a layout places, and what leads from one to another."""

from dataclasses import dataclass
from typing import Literal

Rank = Literal["first", "inner", "last"]
"""`first` and `last` are what links come in and go out by: above and below all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A rectangle to be placed. Its axis is where its links come in and go out."""

    left: float
    """How far it reaches to the left of its axis."""
    right: float
    height: float
    rank: Rank = "inner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arc:
    """A link between two items."""

    source: int
    target: int
    out: float = 0.0
    """Where it leaves the source, from its axis to the right."""
    into: float = 0.0
