"""How much of a run is kept: the limit in bytes, and what it buys."""

from dataclasses import replace
from typing import Self

from gradscope.frozen import dataclass
from gradscope.options.recording_options import bytes_of

FOLDED = 100
"""Number of steps that are folded together first."""
CLOSING = 32_768
"""Bytes that are left for the end of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What is kept of a run."""

    limit: int
    """Size of the file in bytes."""
    recent: int = 1_000
    """Number of last steps that are kept whole."""
    chunks: int = 60
    """Number of summaries of one resolution."""
    block: int = 10
    """Number of steps in each that are kept whole."""
    around: int = 2_000
    """Number of steps around events that are kept whole."""
    captured: int = 64
    """Number of captured steps."""
    norms: int = 1
    """Whether the whole steps of summaries have the norms of all parameters."""
    measured: int = 10
    """Number of steps in a summary that keep the norms of parameters."""
    first: int = FOLDED
    """Number of first steps that are kept whole."""

    @classmethod
    def of(cls, size: str) -> Self | None:
        """Return the room of a size such as `256MB`; None for everything."""
        limit = bytes_of(size)
        return None if limit is None else cls(limit=limit)

    def smaller(self) -> Self | None:
        """Return the next smaller room; None if this is the smallest."""
        for name, least in _SMALLER:
            value = getattr(self, name)
            if value > least:
                return replace(self, **{name: max(value // 2, least)})
        return None


_SMALLER = (
    ("chunks", 10),
    ("around", 300),
    ("captured", 8),
    ("recent", 100),
    ("around", 0),
    ("captured", 2),
    ("norms", 0),
    ("first", 10),
    ("recent", 20),
    ("measured", 1),
)
"""What is kept less of, in this order, and down to how much."""


def room_for_steps(limit: int) -> int:
    """Return the size in bytes up to which steps are added; the rest is for summaries."""
    return limit - max(limit // 10, 2 * CLOSING)
