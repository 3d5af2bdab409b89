"""Arranges items and the links between them, the forward from top to bottom."""

import math
from bisect import bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from gradscope.frozen import dataclass
from gradscope.report.graph.layers import Arc, Item, LayeredGraph, Segment, layered

_CROSSING_SWEEPS = 8
"""Number of sweeps, down and up in turn; more hardly ever help."""


def ordered(graph: LayeredGraph) -> tuple[tuple[int, ...], ...]:
    """Return the layers with each item near the items that it is linked with.

    Source: Sugiyama, Tagawa, Toda, "Methods for Visual Understanding of Hierarchical System
    Structures", 1981: sweeps by barycenters, of which the best is kept.
    """
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for segment in graph.segments:
        above.setdefault(segment.lower, []).append(segment.upper)
        below.setdefault(segment.upper, []).append(segment.lower)
    layers = [list(layer) for layer in graph.layers]
    best, fewest = graph.layers, crossings(layers, below)
    for sweep in range(_CROSSING_SWEEPS):
        if not fewest:
            break
        is_down = sweep % 2 == 0
        for layer in range(1, len(layers)) if is_down else range(len(layers) - 2, -1, -1):
            fixed = layers[layer - 1 if is_down else layer + 1]
            layers[layer] = _by_barycenter(layers[layer], fixed, above if is_down else below)
        count = crossings(layers, below)
        if count < fewest:
            best, fewest = tuple(tuple(layer) for layer in layers), count
    return best


def crossings(layers: Sequence[Sequence[int]], below: dict[int, list[int]]) -> int:
    """Return the number of crossings of links between the layers."""
    total = 0
    for upper, lower in pairwise(layers):
        positions = {item: position for position, item in enumerate(lower)}
        seen: list[int] = []
        for item in upper:
            ends = [positions[end] for end in below.get(item, ())]
            # Links cross if their upper and their lower ends are in opposite order.
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            # Links of one item start at one point, and do not cross each other.
            for end in ends:
                insort(seen, end)
    return total


def _by_barycenter(
    layer: Sequence[int], fixed: Sequence[int], linked: dict[int, list[int]]
) -> list[int]:
    """Return a layer sorted by the ends of its links; items without links keep their position."""
    positions = {item: position for position, item in enumerate(fixed)}
    centers = {
        item: sum(positions[end] for end in ends) / len(ends)
        for item in layer
        if (ends := linked.get(item))
    }
    moving = iter(sorted(centers, key=lambda item: centers[item]))
    return [next(moving) if item in centers else item for item in layer]


ITEM_GAP = 22.0
BEND_GAP = 14.0
_SWEEPS = 6
_WEIGHT = 1e-6
"""Weight of a bend's preferred position relative to an item's."""
_BEND_WEIGHT = Item(left=0.0, right=0.0, height=0.0)

_Linked = dict[int, list[tuple[int, float, int]]]
"""By item: a linked item, the offset to the left of its axis at which the link is vertical, and the
weight of the link.
"""


def item_of(items: Sequence[Item], number: int) -> Item:
    """Return what a number in a layer represents; bends have no size."""
    return items[number] if number < len(items) else _BEND_WEIGHT


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
    """Axes if all items are packed to the left."""
    weights: Sequence[float]

    @classmethod
    def of(cls, items: Sequence[Item], layer: Sequence[int]) -> "_Row":
        starts, edge = [], 0.0
        for number in layer:
            item = item_of(items, number)
            starts.append(edge + item.left)
            edge += item.left + item.right + (BEND_GAP if number >= len(items) else ITEM_GAP)
        return cls(layer, starts, [_WEIGHT if number >= len(items) else 1.0 for number in layer])

    def room(self, position: int, axes: dict[int, float]) -> tuple[float, float]:
        """Return the range of axes of an item, given the positions of the others."""
        number, low, high = self.numbers[position], -math.inf, math.inf
        if position:
            before = self.numbers[position - 1]
            low = axes[before] + self.starts[position] - self.starts[position - 1]
        if position + 1 < len(self.numbers):
            after = self.numbers[position + 1]
            high = axes[after] + self.starts[position] - self.starts[position + 1]
        # Rounding may have left it outside of the range.
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
    """Move the bends of each long link to one axis, if one has space for all."""
    position_of = {
        number: (row, position) for row in rows for position, number in enumerate(row.numbers)
    }
    done: set[int] = set()
    for way in graph.ways:
        bends = [number for number in way[1:-1] if number not in done]
        done.update(bends)
        if len(bends) < 2:
            continue
        rooms = [row.room(position, axes) for row, position in map(position_of.__getitem__, bends)]
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
    for position, (value, weight) in enumerate(values):
        seen += weight
        if seen > half:
            return value
        if seen == half:
            return (value + values[position + 1][0]) / 2
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


LAYER_GAP = 30.0
PORT_GAP = 8.0
"""Distance between the ports of incoming links and the first layer."""
_SLOPE = 0.06
"""Extra vertical space per pixel of horizontal distance."""
_MOST_GAP = 60.0
_TURN = 6.0
"""Distance from the layers at which upward links turn."""
_BEND = 16.0
"""Minimum height of a link that leads aside."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Where everything is, in pixels from the top left corner."""

    width: float
    height: float
    positions: tuple[Point, ...]
    """Axis and upper edge of each item."""
    ways: tuple[tuple[Point, ...], ...]
    """Points of each arc, from source to target."""
    is_back: tuple[bool, ...]


def arrange(items: Sequence[Item], arcs: Sequence[Arc]) -> Arrangement:
    """Return positions that keep items apart, and keep links off the items that they pass."""
    graph = layered(items, arcs)
    layers = ordered(graph)
    axes = horizontal(items, graph, layers)
    rows = _rows(items, graph, layers, axes)
    row_of = {number: row for layer, row in zip(layers, rows, strict=True) for number in layer}
    tops = {
        number: top + (bottom - top - item_of(items, number).height) / 2
        for number, (top, bottom) in row_of.items()
    }
    ways_of = _Ways(items, axes, tops, row_of)
    ways = tuple(
        tuple(ways_of.back(arc, way) if back else ways_of.down(arc, way))
        for arc, way, back in zip(arcs, graph.ways, graph.is_back, strict=True)
    )
    right = max((axes[n] + item_of(items, n).right for n in axes), default=0.0)
    return Arrangement(
        width=right,
        # Links that lead up leave below the lowest layer.
        height=(rows[-1][1] if rows else 0.0) + (2 * _TURN if any(graph.is_back) else 0.0),
        positions=tuple((axes[number], tops[number]) for number in range(len(items))),
        ways=ways,
        is_back=graph.is_back,
    )


def _rows(
    items: Sequence[Item],
    graph: LayeredGraph,
    layers: Sequence[Sequence[int]],
    axes: dict[int, float],
) -> list[Point]:
    """Return upper and lower edge of each layer."""
    number_of = {number: row for row, layer in enumerate(layers) for number in layer}
    aside = [0.0] * (len(layers) + 1)
    for one in graph.segments:
        row = number_of[one.lower]
        way = abs(axes[one.upper] + one.out - axes[one.lower] - one.into)
        aside[row] = max(aside[row], way)
    rows: list[Point] = []
    edge = 0.0
    for row, layer in enumerate(layers):
        height = max((item_of(items, number).height for number in layer), default=0.0)
        if row:
            beside = [item_of(items, number) for number in (*layers[row - 1], *layer)]
            are_ports = any(item.rank != "inner" and not item.height for item in beside)
            gap = PORT_GAP + min(aside[row], _BEND) if are_ports else LAYER_GAP
            edge += min(gap + _SLOPE * aside[row], _MOST_GAP)
        rows.append((edge, edge + height))
        edge += height
    return rows


@dataclass(frozen=True, slots=True)
class _Ways:
    """The points of links; they lead aside between layers alone."""

    items: Sequence[Item]
    axes: Mapping[int, float]
    tops: Mapping[int, float]
    rows: Mapping[int, Point]

    def down(self, arc: Arc, way: Sequence[int]) -> Iterator[Point]:
        """Yield the points of a link from top to bottom."""
        start, end = self.axes[arc.source] + arc.out, self.axes[arc.target] + arc.into
        yield (start, self._bottom(arc.source))
        yield (start, self.rows[arc.source][1])
        for bend in way[1:-1]:
            top, bottom = self.rows[bend]
            yield (self.axes[bend], top)
            yield (self.axes[bend], bottom)
        yield (end, self.rows[arc.target][0])
        yield (end, self.tops[arc.target])

    def back(self, arc: Arc, way: Sequence[int]) -> Iterator[Point]:
        """Yield the points of a link that leads up: out below its source, and around to the top."""
        start, end = self.axes[arc.source] + arc.out, self.axes[arc.target] + arc.into
        below, above = self.rows[arc.source][1] + _TURN, self.rows[arc.target][0] - _TURN
        yield (start, self._bottom(arc.source))
        yield (start, below)
        yield (self.axes[way[1]], below)
        for bend in way[1:-1]:
            top, bottom = self.rows[bend]
            yield (self.axes[bend], bottom)
            yield (self.axes[bend], top)
        yield (self.axes[way[-2]], above)
        yield (end, above)
        yield (end, self.tops[arc.target])

    def _bottom(self, item: int) -> float:
        return self.tops[item] + self.items[item].height
