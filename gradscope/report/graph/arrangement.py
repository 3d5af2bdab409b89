"""Places items and the links between them, the forward from top to bottom."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gradscope.report.graph.coordinates import horizontal, item_of
from gradscope.report.graph.crossings import ordered
from gradscope.report.graph.items import Arc, Item
from gradscope.report.graph.layers import LayeredGraph, layered

LAYER_GAP = 30.0
PORT_GAP = 8.0
"""Between what links come in by and the first layer."""
_SLOPE = 0.06
"""How much more room links get for each pixel that they lead aside."""
_MOST_GAP = 60.0
_TURN = 6.0
"""How far links that lead up stay away from the layers that they turn at."""
_BEND = 16.0
"""The least height of a link that leads aside."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """Where everything is, in pixels from the top left corner."""

    width: float
    height: float
    places: tuple[Point, ...]
    """Of each item: its axis and its upper edge."""
    ways: tuple[tuple[Point, ...], ...]
    """Of each arc: the points that it goes through, from source to target."""
    is_back: tuple[bool, ...]


def arrange(items: Sequence[Item], arcs: Sequence[Arc]) -> Arrangement:
    """Return places that keep items apart, and links out of the items that they pass."""
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
        height=(rows[-1][1] if rows else 0.0) + (2 * _TURN if any(graph.is_back) else 0.0),
        places=tuple((axes[number], tops[number]) for number in range(len(items))),
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
