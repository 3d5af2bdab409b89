"""Places items and the links between them, the forward from top to bottom."""

from collections.abc import Sequence
from dataclasses import dataclass

from gradscope.report.graph.coordinates import horizontal, item_of
from gradscope.report.graph.crossings import ordered
from gradscope.report.graph.layers import Arc, Item, LayeredGraph, layered

LAYER_GAP = 30.0
PORT_GAP = 8.0
"""Between what links come in by and the first layer."""
_SLOPE = 0.06
"""How much more room links get for each pixel that they lead aside."""
_MOST_GAP = 60.0
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
    ways = []
    for arc, way, back in zip(arcs, graph.ways, graph.is_back, strict=True):
        upper, lower = (arc.into, arc.out) if back else (arc.out, arc.into)
        points = _points(items, way, (upper, lower), axes, tops, row_of)
        ways.append(tuple(reversed(points)) if back else tuple(points))
    right = max((axes[n] + item_of(items, n).right for n in axes), default=0.0)
    return Arrangement(
        width=right,
        height=rows[-1][1] if rows else 0.0,
        places=tuple((axes[number], tops[number]) for number in range(len(items))),
        ways=tuple(ways),
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
            are_ports = any(
                item_of(items, number).rank != "inner" for number in (*layers[row - 1], *layer)
            )
            gap = PORT_GAP + min(aside[row], _BEND) if are_ports else LAYER_GAP
            edge += min(gap + _SLOPE * aside[row], _MOST_GAP)
        rows.append((edge, edge + height))
        edge += height
    return rows


def _points(
    items: Sequence[Item],
    way: Sequence[int],
    offsets: tuple[float, float],
    axes: dict[int, float],
    tops: dict[int, float],
    row_of: dict[int, Point],
) -> list[Point]:
    """Return the points of a link from top to bottom; it leads aside between layers alone."""
    upper, lower = way[0], way[-1]
    start, end = axes[upper] + offsets[0], axes[lower] + offsets[1]
    points = [(start, tops[upper] + item_of(items, upper).height), (start, row_of[upper][1])]
    for bend in way[1:-1]:
        points += [(axes[bend], row_of[bend][0]), (axes[bend], row_of[bend][1])]
    points += [(end, row_of[lower][0]), (end, tops[lower])]
    return [point for place, point in enumerate(points) if not place or point != points[place - 1]]
