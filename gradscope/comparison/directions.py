"""How far the gradients themselves agree, where both sides have kept them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from gradscope.comparison.matching import Matching
from gradscope.comparison.side import Side
from gradscope.recording.kept_gradient import Agreement, KeptGradient, agreement

_MOST_ELEMENTS = 60_000_000
"""About so many elements of runs are compared: of longer ones, steps in equal distances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directions:
    """The agreement of a side's gradients with the base's; of runs, over steps kept in both."""

    by_parameter: Mapping[int, Agreement]
    """By place in the base."""
    total: Agreement | None
    """Of all parameters together; None where none was kept in both."""
    steps: int
    """How many steps that is over."""


def directions_of(
    base: Side, other: Side, matching: Matching, steps: Collection[int]
) -> Directions:
    """Return how far kept gradients agree.

    Args:
        base: The first side.
        other: The other.
        matching: Of their parameters.
        steps: Those that are compared of runs; of single steps the judged ones are.
    """
    ours, theirs = _by_step(base, steps), _by_step(other, steps)
    common = _spread(sorted(ours.keys() & theirs.keys()), ours)
    found: dict[int, Agreement] = {}
    for own, its in matching.pairs:
        pairs = [
            (ours[step][own], theirs[step][its])
            for step in common
            if own in ours[step] and its in theirs[step]
        ]
        known = [one for pair in pairs if (one := agreement(*pair)) is not None]
        if known:
            found[own] = reduce(add, known)
    return Directions(
        by_parameter=found,
        total=reduce(add, found.values()) if found else None,
        steps=len(common) if found else 0,
    )


def _spread(common: Sequence[int], kept: Mapping[int, Mapping[int, KeptGradient]]) -> list[int]:
    """Return as many of some steps as are compared within seconds, the first and last of them."""
    largest = max((sum(one.numel for one in kept[step].values()) for step in common), default=0)
    most = max(_MOST_ELEMENTS // max(largest, 1), 2)
    if len(common) <= most:
        return [*common]
    return [common[turn * (len(common) - 1) // (most - 1)] for turn in range(most)]


def _by_step(side: Side, steps: Collection[int]) -> dict[int, dict[int, KeptGradient]]:
    """Return the kept gradients by step and parameter; a single one goes by 0."""
    found: dict[int, dict[int, KeptGradient]] = {}
    for one in side.report.recording.kept_gradients:
        is_wanted = one.step in steps if side.is_run else one.step == side.step
        if is_wanted:
            key = one.step if side.is_run and len(steps) > 1 else 0
            found.setdefault(key, {})[one.parameter] = one
    return found
