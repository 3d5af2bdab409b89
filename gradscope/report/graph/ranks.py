"""Which layer each item of a drawing is in."""

from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush

from gradscope.report.graph.items import Arc, Item

_Neighbours = Sequence[Sequence[int]]
"""By item: those that arcs lead to, or come from."""


def ranks(items: Sequence[Item], arcs: Sequence[Arc]) -> list[int]:
    """Return the layer of each item: one below the lowest of those that lead to it.

    An arc that closes a circle leads up, or to the same layer. What nothing leads to, as
    parameters, stands just above what it leads to, and so does all that is made of that alone: the
    input of an unrolled step stands beside the step.
    """
    order = _forward_order(len(items), arcs)
    place = {item: place for place, item in enumerate(order)}
    down = [arc for arc in arcs if place[arc.source] < place[arc.target]]
    below, above = _neighbours(len(items), down)
    base = int(any(item.rank == "first" for item in items))
    found = [0 if item.rank == "first" else base for item in items]
    for number in order:
        for lower in below[number]:
            found[lower] = max(found[lower], found[number] + 1)
    floating: set[int] = set()
    for number in order:
        if items[number].rank == "inner" and floating.issuperset(above[number]):
            floating.add(number)
    for number in reversed(order):
        if number in floating and below[number]:
            found[number] = min(found[lower] for lower in below[number]) - 1
    return _with_last(items, found)


def _with_last(items: Sequence[Item], found: Sequence[int]) -> list[int]:
    """Return the layers with those items lowest that links go out by."""
    inner = [layer for layer, item in zip(found, items, strict=True) if item.rank != "last"]
    last = max(inner, default=0) + 1
    return [
        last if item.rank == "last" else layer for layer, item in zip(found, items, strict=True)
    ]


def _neighbours(count: int, arcs: Sequence[Arc]) -> tuple[list[list[int]], list[list[int]]]:
    below: list[list[int]] = [[] for _ in range(count)]
    above: list[list[int]] = [[] for _ in range(count)]
    for arc in arcs:
        below[arc.source].append(arc.target)
        above[arc.target].append(arc.source)
    return below, above


def _forward_order(count: int, arcs: Sequence[Arc]) -> list[int]:
    """Return the items so that arcs lead on; of a circle, the first item comes first."""
    below, above = _neighbours(count, arcs)
    waiting = [len(sources) for sources in above]
    ready = [item for item, sources in enumerate(waiting) if not sources]
    heapify(ready)
    left = dict.fromkeys(range(count))
    order: list[int] = []
    while left:
        item = heappop(ready) if ready else _in_circle(left, above)
        if item not in left:
            continue
        del left[item]
        order.append(item)
        for target in below[item]:
            waiting[target] -= 1
            if not waiting[target] and target in left:
                heappush(ready, target)
    return order


def _in_circle(left: Collection[int], above: _Neighbours) -> int:
    """Return the first item of a circle to which only the circle itself leads.

    Args:
        left: The items to choose from; each has one of them above it.
        above: What leads to each item.
    """
    item = min(left)
    while True:
        circle = _leading_to(item, left, above)
        higher = [one for one in circle if item not in _leading_to(one, left, above)]
        if not higher:
            return min(circle)
        item = min(higher)


def _leading_to(item: int, left: Collection[int], above: _Neighbours) -> set[int]:
    """Return the items from which arcs lead to one, itself included where it is in a circle."""
    found: set[int] = set()
    pending = [item]
    while pending:
        new = [one for one in above[pending.pop()] if one in left and one not in found]
        found.update(new)
        pending += new
    return found
