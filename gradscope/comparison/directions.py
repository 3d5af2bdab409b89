"""How far the gradients themselves agree, where both sides have kept them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add

from gradscope.comparison.matching import Matching
from gradscope.comparison.side import Side
from gradscope.recording.stored_gradient import Agreement, StoredGradient, agreement


@dataclass(frozen=True, slots=True, kw_only=True)
class Directions:
    """The agreement of a side's gradients with the base's."""

    by_parameter: Mapping[int, Agreement]
    """By place in the base."""
    total: Agreement | None
    """Agreement of all parameters together; None without stored gradients in both."""
    steps: tuple[int, ...]
    """Steps of runs that the gradients belong to."""


def directions_of(
    base: Side, other: Side, matching: Matching, steps: Collection[int]
) -> Directions:
    """Return how far kept gradients agree.

    Of runs, a parameter's gradients are compared in the first step in which both were kept: from
    there on the weights are others, and with them the gradients.

    Args:
        base: The first side.
        other: The other.
        matching: Of their parameters.
        steps: Those that are compared of runs; of single steps the judged ones are.
    """
    ours, theirs = _by_step(base, steps), _by_step(other, steps)
    common = sorted(ours.keys() & theirs.keys())
    found: dict[int, Agreement] = {}
    used = set()
    for own, its in matching.pairs:
        first = next((s for s in common if own in ours[s] and its in theirs[s]), None)
        agreed = None if first is None else agreement(ours[first][own], theirs[first][its])
        if first is not None and agreed is not None:
            found[own] = agreed
            used.add(first)
    return Directions(
        by_parameter=found,
        total=reduce(add, found.values()) if found else None,
        steps=tuple(sorted(used)) if base.is_run and other.is_run else (),
    )


def _by_step(side: Side, steps: Collection[int]) -> dict[int, dict[int, StoredGradient]]:
    """Return the kept gradients by step and parameter; a single one goes by 0."""
    found: dict[int, dict[int, StoredGradient]] = {}
    for one in side.report.recording.stored_gradients:
        is_wanted = one.step in steps if side.is_run else one.step == side.step
        if is_wanted:
            key = one.step if side.is_run and len(steps) > 1 else 0
            found.setdefault(key, {})[one.parameter] = one
    return found
