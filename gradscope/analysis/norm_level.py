"""The usual size of gradient norms, and a limit that cuts outliers alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

_NEAR = 2.0
"""Norms that differ by no more are of one size."""
_FEW = 8
"""Below so many norms nothing is told of how they change."""
_AT_ONCE = 5
"""Norms of which the median is taken, to see where they settle."""
_NORMAL = 1.4826
"""Standard deviations of a normal distribution in one median absolute deviation."""
_DEVIATIONS = 3.0
_FLAT = 1.5
"""Times the median, where norms do not spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The typical norms of a series."""

    settled: int
    """How many of the first norms are not typical."""
    first: float
    """Their median; that of all where there are none."""
    median: float
    """Of those after them."""
    deviation: float
    """Their median absolute deviation."""
    count: int
    """How many they are."""
    still_moves: bool
    """Whether the first half never came to the level of the second."""

    @property
    def limit(self) -> float:
        """The largest norm that cuts outliers alone, rounded to two digits."""
        if not self.deviation:
            return rounded(_FLAT * self.median)
        return rounded(self.median + _DEVIATIONS * _NORMAL * self.deviation)


def level_of(norms: Sequence[float], *, in_order: bool = True) -> Level | None:
    """Return the level of finite norms; None where there are none, or nothing but zeros.

    Args:
        norms: Finite norms.
        in_order: Whether they were made one after another, by a model in training.
    """
    if not norms or not any(norms):
        return None
    half = len(norms) // 2
    settled = _settled(norms) if in_order and len(norms) >= _FEW else 0
    typical = norms[settled:]
    middle = median(typical)
    return Level(
        settled=settled,
        first=median(norms[:settled] or norms),
        median=middle,
        deviation=median(abs(norm - middle) for norm in typical),
        count=len(typical),
        still_moves=settled > 0 and settled >= half,
    )


def _settled(norms: Sequence[float]) -> int:
    """Return how many norms come before the first that are like those of the second half."""
    half = len(norms) // 2
    typical = median(norms[half:])
    for start in range(half):
        near = median(norms[start : start + _AT_ONCE])
        if typical / _NEAR <= near <= typical * _NEAR:
            return start
    return half


def rounded(value: float) -> float:
    """Return a number as one would write it: with two digits."""
    return float(f"{value:.1e}") if math.isfinite(value) else value
