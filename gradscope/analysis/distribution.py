"""How numbers spread: quantiles, and a histogram of decades' parts."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

SHARES = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
_BINS = 12
_ONE_SIZE = 6.0
"""Numbers that differ by no larger factor have bins of equal width."""
_FINEST = 0.01
"""Of the least number: no bin is narrower."""


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile of ascending numbers, between two of them as numpy does."""
    place = share * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Numbers from `low` on, below `high`."""

    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Some numbers, all finite."""

    count: int
    least: float
    quantiles: tuple[float, ...]
    """At `SHARES`."""
    greatest: float
    mean: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """Return that of some numbers, None without any."""
        if not values:
            return None
        ordered = sorted(values)
        return cls(
            count=len(ordered),
            least=ordered[0],
            quantiles=tuple(quantile(ordered, share) for share in SHARES),
            greatest=ordered[-1],
            mean=math.fsum(ordered) / len(ordered),
        )

    @property
    def median(self) -> float:
        """The middle one."""
        return self.quantiles[SHARES.index(0.5)]


def histogram(values: Sequence[float]) -> tuple[Bin, ...]:
    """Return at most a dozen bins, whose ends are round numbers.

    They are equally wide where the numbers are of one size, else each is about twice as wide as the
    one before, or ten times. What is zero has a bin of its own.
    """
    positive = [value for value in values if value > 0]
    zeros = len(values) - len(positive)
    bins = [Bin(low=0.0, high=0.0, count=zeros)] if zeros else []
    if positive:
        edges = _edges(min(positive), max(positive))
        counts = [0] * (len(edges) - 1)
        for value in positive:
            counts[bisect_right(edges, value, hi=len(edges) - 1) - 1] += 1
        bins += [
            Bin(low=low, high=high, count=count)
            for (low, high), count in zip(pairwise(edges), counts, strict=True)
        ]
    return tuple(bins)


def _edges(least: float, greatest: float) -> list[float]:
    if greatest <= _ONE_SIZE * least:
        return _equal_edges(least, greatest)
    edges = round_numbers(least, greatest, (1, 2, 5))
    if len(edges) > _BINS + 1:
        edges = round_numbers(least, greatest, (1,))
    if len(edges) > _BINS + 1:
        edges = edges[:: -(-len(edges) // _BINS)]
        edges += [10 * greatest] if edges[-1] <= greatest else []
    return edges


def _equal_edges(least: float, greatest: float) -> list[float]:
    rough = max((greatest - least) / (_BINS - 2), least * _FINEST)
    power = 10.0 ** math.floor(math.log10(rough))
    width = next(size * power for size in (1, 2, 5, 10) if size * power >= rough)
    first = math.floor(least / width)
    count = math.floor(greatest / width) - first + 1
    return [float(f"{width * (first + place):.6g}") for place in range(count + 1)]


def round_numbers(least: float, greatest: float, digits: Sequence[int]) -> list[float]:
    """Return the numbers of some first digits from at most `least` to more than `greatest`."""
    # The logarithm of a number just below a power of ten is that of the power.
    low, high = math.floor(math.log10(least)) - 1, math.floor(math.log10(greatest)) + 1
    numbers = [float(f"{digit}e{power}") for power in range(low, high + 1) for digit in digits]
    first = max(place for place, number in enumerate(numbers) if number <= least)
    last = min(place for place, number in enumerate(numbers) if number > greatest)
    return numbers[first : last + 1]
