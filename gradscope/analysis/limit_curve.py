"""What every largest norm in a range would cut, for a curve."""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

from gradscope.analysis.clip_arithmetic import EPSILON, coefficient


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitCurve:
    """What largest norms would do to the norms that were measured, a value for each limit."""

    limits: tuple[float, ...]
    """Ascending."""
    shares: tuple[float, ...]
    """Of the steps, that are cut."""
    means: tuple[float, ...]
    """Coefficient over all steps."""

    @classmethod
    def of(cls, norms: Sequence[float], limits: Iterable[float]) -> Self:
        """Return the curve over some limits.

        Args:
            norms: At least one, all finite.
            limits: Above zero.
        """
        ordered = sorted(norms)
        # What is left of the largest norms, from the first on, under a limit of 1 that cuts them.
        left = [0.0, *accumulate(1 / (norm + EPSILON) for norm in reversed(ordered))]
        ascending = tuple(sorted(limits))
        kept = [_kept(limit, ordered) for limit in ascending]
        count = len(ordered)
        return cls(
            limits=ascending,
            shares=tuple((count - held) / count for held in kept),
            means=tuple(
                (held + limit * left[count - held]) / count
                for held, limit in zip(kept, ascending, strict=True)
            ),
        )


def spaced(least: float, greatest: float, count: int) -> tuple[float, ...]:
    """Return numbers over a range of decades, equally far from each other on a logarithmic axis."""
    low, high = math.log10(least), math.log10(greatest)
    return tuple(10 ** (low + (high - low) * at / (count - 1)) for at in range(count))


def _kept(limit: float, ordered: Sequence[float]) -> int:
    """Return how many of the ascending norms a limit leaves as they are."""
    return bisect_left(ordered, True, key=lambda norm: coefficient(limit, norm) < 1)
