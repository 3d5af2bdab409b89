"""How gradient norms spread, and which limit cuts outliers alone."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from statistics import median
from typing import Literal, Self

from gradscope.analysis.clipping.arithmetic import EPSILON, coefficient
from gradscope.frozen import dataclass

_NEAR = 2.0
"""Norms that differ by no larger factor count as equal in size."""
_FEW = 8
"""Minimum number of norms for a statement on how they change."""
_AT_ONCE = 5
"""Number of norms in each median of the search for the step where they settle."""
_NORMAL = 1.4826
"""Number of standard deviations of a normal distribution in one median absolute deviation."""
# Three standard deviations hold 99.7 % of a normal distribution.
_DEVIATIONS = 3.0
FLAT = 1.5
"""Multiple of the median that limits typical norms if the norms do not vary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """The typical norms of a series."""

    settled: int
    """Number of first norms that are not typical."""
    first: float
    """Median of the first norms, or of all norms if there are no first ones."""
    median: float
    """Median of the norms after the first ones."""
    deviation: float
    """Median absolute deviation of these norms."""
    count: int
    """Number of these norms."""
    still_moves: bool
    """Whether the first half never reaches the level of the second."""

    @property
    def spread(self) -> float:
        """Standard deviation of these norms, as of a normal distribution with their median."""
        return _NORMAL * self.deviation

    @property
    def limit(self) -> float:
        """The largest norm that cuts outliers alone, rounded to two digits."""
        # The deviation is zero if most norms are equal. The median as a limit would cut all above
        # it.
        if not self.deviation:
            return rounded(FLAT * self.median)
        return rounded(self.median + _DEVIATIONS * self.spread)


def level_of(norms: Sequence[float], *, in_order: bool = True) -> Level | None:
    """Return the level of finite norms; None without any, or if all are zero.

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
    """Return the number of norms before the first that is similar to those of the second half."""
    half = len(norms) // 2
    typical = median(norms[half:])
    for start in range(half):
        # The median of a few norms ignores a lone outlier.
        near = median(norms[start : start + _AT_ONCE])
        if typical / _NEAR <= near <= typical * _NEAR:
            return start
    return half


def rounded(value: float) -> float:
    """Return a number as one would write it: with two digits."""
    # `round` counts decimals, not significant digits.
    return float(f"{value:.1e}") if math.isfinite(value) else value


SHARES = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
_BINS = 12
_ONE_SIZE = 6.0
"""Numbers within this factor get bins of equal width."""
_FINEST = 0.01
"""Smallest width of a bin, relative to the smallest number."""


def quantile(values: Sequence[float], share: float) -> float:
    """Return a quantile of ascending numbers, between two of them as numpy does."""
    position = share * (len(values) - 1)
    low = math.floor(position)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (position - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """A bin of numbers: at least `low`, below `high`."""

    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """The distribution of finite numbers."""

    count: int
    least: float
    quantiles: tuple[float, ...]
    """Quantiles at `SHARES`."""
    greatest: float
    mean: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self | None:
        """Return the distribution of some numbers, None without any."""
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
        """Median norm."""
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
            # Edges are rounded, and may end at the largest number: `hi` keeps it in the last bin.
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
        # The negated floor division rounds up, so no more than the maximum is left.
        edges = edges[:: -(-len(edges) // _BINS)]
        edges += [10 * greatest] if edges[-1] <= greatest else []
    return edges


def _equal_edges(least: float, greatest: float) -> list[float]:
    # Round ends reach beyond the numbers by up to a bin on each side.
    rough = max((greatest - least) / (_BINS - 2), least * _FINEST)
    power = 10.0 ** math.floor(math.log10(rough))
    width = next(size * power for size in (1, 2, 5, 10) if size * power >= rough)
    first = math.floor(least / width)
    count = math.floor(greatest / width) - first + 1
    # Multiples have long tails as floats: 3 * 0.1 is 0.30000000000000004.
    return [float(f"{width * (first + position):.6g}") for position in range(count + 1)]


def round_numbers(least: float, greatest: float, digits: Sequence[int]) -> list[float]:
    """Return the numbers of some first digits from at most `least` to more than `greatest`."""
    # The logarithm of a number just below a power of ten is that of the power.
    low, high = math.floor(math.log10(least)) - 1, math.floor(math.log10(greatest)) + 1
    # Parsed text is the nearest float: 3 * 10**-5 is 3.0000000000000004e-05.
    numbers = [float(f"{digit}e{power}") for power in range(low, high + 1) for digit in digits]
    first = max(position for position, number in enumerate(numbers) if number <= least)
    last = min(position for position, number in enumerate(numbers) if number > greatest)
    return numbers[first : last + 1]


Mark = Literal["", "given", "auto", "given, auto"]

_ROWS = 9
_LEAST_ROWS = 4
ENOUGH = 100
"""Minimum number of norms for a reliable limit: fewer do not show rare outliers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """The effect of a maximum norm on the measured norms."""

    limit: float
    share: float
    """Share of the steps that are clipped."""
    mean: float
    """Mean coefficient of all steps."""
    mean_cut: float | None
    """Mean coefficient of the clipped steps; None without any."""
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The largest norm that is advised."""

    limit: float
    level: Level
    share: float
    """Share of the steps after the first ones that the limit clips."""
    quantiles: tuple[tuple[float, float], ...]
    """Quantiles of the norms."""
    is_sure: bool
    """Whether there were enough norms."""


def advise(norms: Sequence[float], *, in_order: bool) -> Advice | None:
    """Return the largest norm to be advised; None without a gradient above zero."""
    level = level_of(norms, in_order=in_order)
    if level is None or not level.limit:
        return None
    typical = sorted(norms[level.settled :])
    return Advice(
        limit=level.limit,
        level=level,
        share=sum(_is_cut(level.limit, norm) for norm in typical) / len(typical),
        quantiles=tuple((share, quantile(typical, share)) for share in (0.5, 0.75, 0.9, 0.99)),
        is_sure=len(typical) >= ENOUGH and not level.still_moves,
    )


def sweep(
    norms: Sequence[float], *, given: float | None, advised: float | None
) -> tuple[SweepRow, ...]:
    """Return what some largest norms would do, ascending: round ones, the given, the advised."""
    positive = sorted(norm for norm in norms if norm > 0)
    if not positive:
        return ()
    marked = [limit for limit in (given, advised) if limit and math.isfinite(limit)]
    limits = sorted({*_round_limits(positive), *marked})
    return tuple(_row(limit, norms, given, advised) for limit in limits)


def _round_limits(positive: Sequence[float]) -> list[float]:
    # The lowest norms are left out: one near zero would add rows in which every step is clipped.
    least, greatest = quantile(positive, 0.01), positive[-1]
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = round_numbers(least, greatest, digits)
        if len(found) <= _ROWS:
            break
    else:
        found = found[:: -(-len(found) // _ROWS)]
    if len(found) < _LEAST_ROWS:
        # Between norms of one size lie hardly any round numbers.
        found = [rounded(quantile(positive, share)) for share in (0.05, 0.25, 0.5, 0.75, 0.95, 1)]
    return found


def _row(
    limit: float, norms: Sequence[float], given: float | None, advised: float | None
) -> SweepRow:
    factors = [coefficient(limit, norm) for norm in norms]
    cut = [factor for factor in factors if factor < 1]
    marks = [word for word, one in (("given", given), ("auto", advised)) if one == limit]
    return SweepRow(
        limit=limit,
        share=len(cut) / len(factors),
        mean=math.fsum(factors) / len(factors),
        mean_cut=math.fsum(cut) / len(cut) if cut else None,
        mark=", ".join(marks),  # type: ignore[arg-type]
    )


def _is_cut(limit: float, norm: float) -> bool:
    return coefficient(limit, norm) < 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitCurve:
    """What largest norms would do to the norms that were measured, a value for each limit."""

    limits: tuple[float, ...]
    """Limits, in ascending order."""
    shares: tuple[float, ...]
    """By limit: share of the steps that are clipped."""
    means: tuple[float, ...]
    """By limit: mean coefficient of all steps."""

    @classmethod
    def of(cls, norms: Sequence[float], limits: Iterable[float]) -> Self:
        """Return the curve over some limits.

        Args:
            norms: At least one, all finite.
            limits: Above zero.
        """
        ordered = sorted(norms)
        # Remaining parts of the largest norms, in order, under a limit of 1 that clips them.
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
    """Return numbers over a range of decades, equally spaced on a logarithmic axis."""
    low, high = math.log10(least), math.log10(greatest)
    return tuple(10 ** (low + (high - low) * at / (count - 1)) for at in range(count))


def _kept(limit: float, ordered: Sequence[float]) -> int:
    """Return how many of the ascending norms a limit leaves unchanged."""
    # The same comparison as in `_is_cut`: torch adds its epsilon, so the norm is not the limit.
    return bisect_left(ordered, True, key=lambda norm: coefficient(limit, norm) < 1)
