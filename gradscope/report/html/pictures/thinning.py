"""Leaves marks out where there are more than can be told apart, and keeps the extremes."""

from collections.abc import Sequence

MOST_MARKS = 1200
"""So many are drawn as they are."""
_BINS, _OTHERS = 150, 250
_GOLDEN = (5**0.5 - 1) / 2
"""Its multiples are spread evenly between whole numbers, and fall in with no period."""


def thinned(places: Sequence[int], values: Sequence[Sequence[float]]) -> list[int]:
    """Return which marks to draw, ascending: all, or the least and the largest of each bin.

    Some of the others are drawn too: extremes alone would make patterns that are not there.

    Args:
        places: Of each mark on its axis.
        values: What is drawn there, in each of several ways; numbers that can be compared.
    """
    if len(places) <= MOST_MARKS:
        return list(range(len(places)))
    first, last = min(places), max(places)
    bins: dict[int, list[int]] = {}
    for mark, place in enumerate(places):
        bins.setdefault((place - first) * _BINS // (last - first + 1), []).append(mark)
    kept: set[int] = set()
    for marks in bins.values():
        for value in values:
            kept.add(min(marks, key=value.__getitem__))
            kept.add(max(marks, key=value.__getitem__))
    kept.update(at for at in range(len(places)) if at * _GOLDEN % 1 < _OTHERS / len(places))
    return sorted(kept)
