"""Orders the items within layers so that few links cross."""

from bisect import bisect_right, insort
from collections.abc import Sequence
from itertools import pairwise

from gradscope.report.graph.layers import LayeredGraph

_SWEEPS = 8
"""Down and up in turn; more of them hardly ever help."""


def ordered(graph: LayeredGraph) -> tuple[tuple[int, ...], ...]:
    """Return the layers with each item near those that it is linked with above and below.

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
    for sweep in range(_SWEEPS):
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
    """Return how often links cross between the layers."""
    total = 0
    for upper, lower in pairwise(layers):
        places = {item: place for place, item in enumerate(lower)}
        seen: list[int] = []
        for item in upper:
            ends = [places[end] for end in below.get(item, ())]
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _by_barycenter(
    layer: Sequence[int], fixed: Sequence[int], linked: dict[int, list[int]]
) -> list[int]:
    """Return a layer sorted by where its links lead; what has none there keeps its place."""
    places = {item: place for place, item in enumerate(fixed)}
    centers = {
        item: sum(places[end] for end in ends) / len(ends)
        for item in layer
        if (ends := linked.get(item))
    }
    moving = iter(sorted(centers, key=lambda item: centers[item]))
    return [next(moving) if item in centers else item for item in layer]
