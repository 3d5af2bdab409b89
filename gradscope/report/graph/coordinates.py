"""Where the items of layers are placed: links as straight as the order in the layers allows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gradscope.report.graph.items import Item
from gradscope.report.graph.layers import LayeredGraph, Segment

ITEM_GAP = 22.0
BEND_GAP = 14.0
_SWEEPS = 6
_WEIGHT = 1e-6
"""Of a bend, where it wants to be where an item wants to be."""
_BEND = Item(left=0.0, right=0.0, height=0.0)

_Linked = dict[int, list[tuple[int, float, int]]]
"""By item: one that it is linked with, how far left of that one's axis it would be straight below
or above it, and how much that matters."""


def item_of(items: Sequence[Item], number: int) -> Item:
    """Return what a number in a layer stands for; bends have no size."""
    return items[number] if number < len(items) else _BEND


def horizontal(
    items: Sequence[Item], graph: LayeredGraph, layers: Sequence[Sequence[int]]
) -> dict[int, float]:
    """Return the axis of each item and bend; the leftmost edge is at 0."""
    above, below = _linked(graph.segments)
    rows = [_Row.of(items, layer) for layer in layers]
    axes = {
        number: start for row in rows for number, start in zip(row.numbers, row.starts, strict=True)
    }
    for _ in range(_SWEEPS):
        for row in rows:
            row.settle(axes, above)
        for row in reversed(rows):
            row.settle(axes, below)
    _straighten(items, graph, rows, axes)
    left = min((axes[n] - item_of(items, n).left for n in axes), default=0.0)
    return {number: axis - left for number, axis in axes.items()}


def _linked(segments: Sequence[Segment]) -> tuple[_Linked, _Linked]:
    above: _Linked = {}
    below: _Linked = {}
    for one in segments:
        shift = one.out - one.into
        above.setdefault(one.lower, []).append((one.upper, shift, one.weight))
        below.setdefault(one.upper, []).append((one.lower, -shift, one.weight))
    return above, below


@dataclass(frozen=True, slots=True)
class _Row:
    """A layer, whose items keep their order and their distance."""

    numbers: Sequence[int]
    starts: Sequence[float]
    """The axes when all are packed to the left."""
    weights: Sequence[float]

    @classmethod
    def of(cls, items: Sequence[Item], layer: Sequence[int]) -> "_Row":
        starts, edge = [], 0.0
        for number in layer:
            item = item_of(items, number)
            starts.append(edge + item.left)
            edge += item.left + item.right + (BEND_GAP if number >= len(items) else ITEM_GAP)
        return cls(layer, starts, [_WEIGHT if number >= len(items) else 1.0 for number in layer])

    def room(self, place: int, axes: dict[int, float]) -> tuple[float, float]:
        """Return between which axes an item can stand, the others where they are."""
        number, low, high = self.numbers[place], -math.inf, math.inf
        if place:
            before = self.numbers[place - 1]
            low = axes[before] + self.starts[place] - self.starts[place - 1]
        if place + 1 < len(self.numbers):
            after = self.numbers[place + 1]
            high = axes[after] + self.starts[place] - self.starts[place + 1]
        return (min(low, axes[number]), max(high, axes[number]))

    def settle(self, axes: dict[int, float], linked: _Linked) -> None:
        """Move the items as near to straight links with the next layer as they can come."""
        wanted = [
            _median([(axes[other] + shift, weight) for other, shift, weight in linked[number]])
            if number in linked
            else axes[number]
            for number in self.numbers
        ]
        shifts = [axis - start for axis, start in zip(wanted, self.starts, strict=True)]
        placed = ascending(shifts, self.weights)
        for number, start, shift in zip(self.numbers, self.starts, placed, strict=True):
            axes[number] = start + shift


def _straighten(
    items: Sequence[Item], graph: LayeredGraph, rows: Sequence[_Row], axes: dict[int, float]
) -> None:
    """Move the bends of each long link to one axis, where there is one that has room for all."""
    place_of = {number: (row, place) for row in rows for place, number in enumerate(row.numbers)}
    done: set[int] = set()
    for way in graph.ways:
        bends = [number for number in way[1:-1] if number not in done]
        done.update(bends)
        if len(bends) < 2:
            continue
        rooms = [row.room(place, axes) for row, place in map(place_of.__getitem__, bends)]
        low, high = max(room[0] for room in rooms), min(room[1] for room in rooms)
        if low <= high:
            wanted = median(axes[bend] for bend in bends)
            axes.update(dict.fromkeys(bends, min(max(wanted, low), high)))


def _median(values: list[tuple[float, int]]) -> float:
    """Return the weighted median; halfway between two where both halves weigh the same."""
    if len(values) == 1:
        return values[0][0]
    values.sort()
    half, seen = sum(weight for _, weight in values) / 2, 0
    for place, (value, weight) in enumerate(values):
        seen += weight
        if seen > half:
            return value
        if seen == half:
            return (value + values[place + 1][0]) / 2
    return values[-1][0]


def ascending(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the numbers that never descend and lie nearest to these, by weighted squares.

    Source: Barlow et al., "Statistical Inference under Order Restrictions", 1972: what violates
    the order is pooled with what is beside it.
    """
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        mean, total, count = value, weight, 1
        while pools and pools[-1][0] > mean:
            before, heavy, many = pools.pop()
            mean = (before * heavy + mean * total) / (heavy + total)
            total, count = total + heavy, count + many
        pools.append((mean, total, count))
    return [mean for mean, _, count in pools for _ in range(count)]
