"""The largest norm as a choice: what each would cut, and which one is advised."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gradscope.analysis.clip_arithmetic import coefficient
from gradscope.analysis.distribution import quantile, round_numbers
from gradscope.analysis.norm_level import Level, level_of, rounded

Mark = Literal["", "given", "auto", "given, auto"]

_ROWS = 9
_LEAST_ROWS = 4
_ENOUGH = 100
"""Norms from which on a limit can be advised without reserve: rarer outliers are not seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """What a largest norm would do to the norms that were measured."""

    limit: float
    share: float
    """Of the steps, that are cut."""
    mean: float
    """Coefficient over all steps."""
    mean_cut: float | None
    """Over those that are cut; None without any."""
    mark: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The largest norm that is advised."""

    limit: float
    level: Level
    share: float
    """Of the steps after the first ones, that it cuts."""
    quantiles: tuple[tuple[float, float], ...]
    """Of their norms."""
    is_sure: bool
    """Whether there were enough of them."""


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
        is_sure=len(typical) >= _ENOUGH and not level.still_moves,
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
    least, greatest = quantile(positive, 0.01), positive[-1]
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = round_numbers(least, greatest, digits)
        if len(found) <= _ROWS:
            break
    else:
        found = found[:: -(-len(found) // _ROWS)]
    if len(found) < _LEAST_ROWS:
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
