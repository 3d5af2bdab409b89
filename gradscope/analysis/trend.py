"""How a gradient changes from operation to operation: trends of many, jumps of one."""

import heapq
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from gradscope.recording.records import NodeRecord

MATCHED = 3
"""Operations of one type that make a trend."""

_AS_HIGH = 0.9
"""A split that divides the levels as well as the best one does."""

_MOVING = (
    "AsStrided Cat Chunk Clone Copy Diagonal Expand Flip Gather Index IndexSelect Narrow Pad "
    "Repeat Roll Select Slice Split SplitWithSizes Stack ToCopy Unbind Unfold"
)
"""Operations that only move elements."""
_MOVES = frozenset(f"{name}Backward0" for name in _MOVING.split())


@dataclass(frozen=True, slots=True)
class Point:
    """The gradient with respect to what an operation of the spine put out."""

    node: NodeRecord
    level: float
    """log10 of its norm."""


@dataclass(frozen=True, slots=True)
class Trend:
    """How a gradient changes from one operation to an earlier one of the forward."""

    matched: tuple[Point, ...]
    """Operations of one type, in the order of backward."""
    between: tuple[Point, ...]
    """Every operation of the spine from the first of them to the last."""

    @property
    def decades(self) -> float:
        """Powers of ten by which the gradient grows during backward; negative where it shrinks."""
        return self.matched[-1].level - self.matched[0].level

    @property
    def steady(self) -> float:
        """The same, where no operation counts for more than the one that does second most.

        What one operation does alone, as the attention of a decoder to an encoder, is no trend.
        """
        sign = math.copysign(1.0, self.decades)
        steps = [sign * (after.level - before.level) for before, after in pairwise(self.matched)]
        largest = sorted(steps)[-2:]
        return sign * max(0.0, sum(steps) - (largest[-1] - largest[0])) if steps else 0.0

    @property
    def typical(self) -> float:
        """The same, where every operation does as much as the one in the middle does.

        A few operations in an unusual state, as normalisations of zeros, do not change it.
        """
        steps = [after.level - before.level for before, after in pairwise(self.matched)]
        return len(steps) * median(steps) if steps else 0.0

    @property
    def slope(self) -> float:
        """Decades from one operation of the type to the next."""
        return self.decades / max(1, len(self.matched) - 1)

    @property
    def straightness(self) -> float:
        """R2 of a line through the levels: 1 where each operation does as much as the others."""
        levels = [point.level for point in self.matched]
        count, mean = len(levels), sum(levels) / len(levels)
        middle = (count - 1) / 2
        spread = sum((level - mean) ** 2 for level in levels)
        if not spread:
            return 1.0
        shared = sum((position - middle) * (level - mean) for position, level in enumerate(levels))
        return shared**2 / (spread * sum((position - middle) ** 2 for position in range(count)))

    def changes(self) -> Iterator[tuple[NodeRecord, float]]:
        """Yield by how many decades the backward of each operation changes the gradient."""
        for before, after in pairwise(self.between):
            yield before.node, after.level - before.level


def strongest(points: Sequence[Point], sign: int) -> Trend | None:
    """Return the largest rise (or fall, for -1) between operations of one type.

    Of several types the one that rises least.
    """
    positions = defaultdict[str, list[int]](list)
    for position, point in enumerate(points):
        if point.node.kind != "view" and point.node.operation not in _MOVES:
            positions[point.node.operation].append(position)
    most = max((len(found) for found in positions.values()), default=0)
    return mildest(
        [
            _rise(points, found, sign)
            for found in positions.values()
            if len(found) >= max(MATCHED, most / 2)
        ]
    )


def _rise(points: Sequence[Point], positions: Sequence[int], sign: int) -> Trend:
    """Return the part of a chain over which the level rises most, or falls most for -1."""
    lowest, best, ends = 0, 0.0, (0, 0)
    for end, position in enumerate(positions):
        if sign * (points[position].level - points[positions[lowest]].level) < 0:
            lowest = end
        rise = sign * (points[position].level - points[positions[lowest]].level)
        if rise > best:
            best, ends = rise, (lowest, end)
    chosen = positions[ends[0] : ends[1] + 1]
    return Trend(
        tuple(points[position] for position in chosen), tuple(points[chosen[0] : chosen[-1] + 1])
    )


def jump(points: Sequence[Point]) -> Trend | None:
    """Return the two operations between which the median level changes most."""
    if len(points) < 2:
        return None
    levels = [point.level for point in points]
    before, after = running_medians(levels), running_medians(levels[::-1])[::-1]
    heights = [after[split] - before[split - 1] for split in range(1, len(levels))]
    highest = max(heights, key=abs)
    # Medians hardly change from one split to the next: the operation is the one that does most.
    positions = [p for p, height in enumerate(heights, 1) if height / (highest or 1) >= _AS_HIGH]
    sign = math.copysign(1.0, highest)
    position = max(
        positions, key=lambda position: sign * (levels[position] - levels[position - 1]), default=1
    )
    low = Point(points[position - 1].node, levels[position] - highest)
    return Trend((low, points[position]), (low, points[position]))


def running_medians(values: Sequence[float]) -> list[float]:
    """Return the median of the first 1, 2, 3, … values."""
    low: list[float] = []  # a heap of negated values
    high: list[float] = []
    medians = []
    for value in values:
        heapq.heappush(low, -heapq.heappushpop(high, value))
        if len(low) > len(high):
            heapq.heappush(high, -heapq.heappop(low))
        medians.append(high[0] if len(high) > len(low) else (high[0] - low[0]) / 2)
    return medians


def mildest(trends: Sequence[Trend | None]) -> Trend | None:
    """Return the trend that changes least; None where there is none."""
    found = [trend for trend in trends if trend is not None]
    if not found:
        return None
    return min(found, key=lambda trend: abs(trend.steady))
