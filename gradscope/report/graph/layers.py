"""Puts the items of a drawing into layers: links lead from a layer to ones below it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import field
from heapq import heapify, heappop, heappush
from typing import Literal

from gradscope.frozen import dataclass

Rank = Literal["first", "inner", "last"]
"""`first` and `last` are ports of incoming and outgoing links: above and below all other items."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A rectangle to be placed. Its axis is where its links come in and go out."""

    left: float
    """Distance from the axis to the left edge."""
    right: float
    height: float
    rank: Rank = "inner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arc:
    """A link between two items."""

    source: int
    target: int
    out: float = 0.0
    """Distance from the source's axis to the start of the link, to the right."""
    into: float = 0.0


_Neighbours = Sequence[Sequence[int]]
"""By item: the items at the other ends of its arcs."""


def ranks(items: Sequence[Item], arcs: Sequence[Arc]) -> list[int]:
    """Return the layer of each item: one below the lowest of those that lead to it.

    An arc that closes a circle leads up, or to the same layer. What nothing leads to, as
    parameters, stands just above what it leads to, and so does all that is made of that alone: the
    input of an unrolled step stands beside the step.
    """
    order = _forward_order(len(items), arcs)
    position = {item: position for position, item in enumerate(order)}
    down = [arc for arc in arcs if position[arc.source] < position[arc.target]]
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
    """Return the items so that arcs lead forward; the first item of a cycle comes first."""
    below, above = _neighbours(count, arcs)
    waiting = [len(sources) for sources in above]
    ready = [item for item, sources in enumerate(waiting) if not sources]
    # Of what is ready, the item that was recorded first comes next.
    heapify(ready)
    left = dict.fromkeys(range(count))
    order: list[int] = []
    while left:
        item = heappop(ready) if ready else _in_circle(left, above)
        # An item of a circle is taken before it is ready, and becomes ready later.
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
    """Return the first item of a cycle that has no arcs from outside.

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
    """Return the items that lead to one, itself included if it is in a cycle."""
    found: set[int] = set()
    pending = [item]
    while pending:
        new = [one for one in above[pending.pop()] if one in left and one not in found]
        found.update(new)
        pending += new
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The part of a link between one layer and the next."""

    upper: int
    lower: int
    out: float
    into: float
    weight: int
    """Importance of a straight link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredGraph:
    """Items and bends in layers; a link has a bend in each layer that it passes through."""

    layers: tuple[tuple[int, ...], ...]
    """Layers, top to bottom. Numbers from the number of items on are bends."""
    segments: tuple[Segment, ...]
    ways: tuple[tuple[int, ...], ...]
    """Items and bends of each arc, from its source to its target. An arc that leads up also has a
    bend in the layers of both: it leaves its source below, and enters its target from above.
    """
    is_back: tuple[bool, ...]
    """Whether each arc leads up, as one arc of every cycle must."""


def layered(items: Sequence[Item], arcs: Sequence[Arc]) -> LayeredGraph:
    """Return the items in layers, in the order of the forward as far as links allow."""
    return _Layering(items, arcs).build()


@dataclass(slots=True)
class _Layering:
    items: Sequence[Item]
    arcs: Sequence[Arc]
    layer: list[int] = field(init=False, default_factory=list)
    bends: dict[tuple[int, float, int], int] = field(init=False, default_factory=dict)
    """By upper end of the arcs, their start there, and layer: the bend that they share."""
    segments: dict[tuple[int, int, float, float], Segment] = field(init=False, default_factory=dict)

    def build(self) -> LayeredGraph:
        self.layer = ranks(self.items, self.arcs)
        is_back = tuple(self.layer[arc.source] >= self.layer[arc.target] for arc in self.arcs)
        ways = tuple(
            tuple(self._way_back(number, arc) if back else self._way(arc))
            for number, (arc, back) in enumerate(zip(self.arcs, is_back, strict=True))
        )
        return LayeredGraph(
            layers=self._layers(),
            segments=tuple(self.segments.values()),
            ways=ways,
            is_back=is_back,
        )

    def _way(self, arc: Arc) -> Iterator[int]:
        yield arc.source
        current, leaves = arc.source, arc.out
        for layer in range(self.layer[arc.source] + 1, self.layer[arc.target]):
            bend = self._bend((arc.source, arc.out, layer))
            self._join(current, bend, leaves, 0.0)
            yield bend
            current, leaves = bend, 0.0
        self._join(current, arc.target, leaves, arc.into)
        yield arc.target

    def _way_back(self, number: int, arc: Arc) -> Iterator[int]:
        yield arc.source
        before = None
        for layer in range(self.layer[arc.source], self.layer[arc.target] - 1, -1):
            # A negative key never equals an item, so the bend is not shared.
            bend = self._bend((-1 - number, 0.0, layer))
            if before is not None:
                self._join(bend, before, 0.0, 0.0)
            yield bend
            before = bend
        yield arc.target

    def _bend(self, key: tuple[int, float, int]) -> int:
        return self.bends.setdefault(key, len(self.items) + len(self.bends))

    def _join(self, upper: int, lower: int, out: float, into: float) -> None:
        bends = (upper >= len(self.items)) + (lower >= len(self.items))
        # A link is held straight most between bends, where it passes other items.
        weight = (4, 1, 8)[bends]
        self.segments[upper, lower, out, into] = Segment(
            upper=upper, lower=lower, out=out, into=into, weight=weight
        )

    def _layers(self) -> tuple[tuple[int, ...], ...]:
        """Return the layers, each in the order in which a walk along the arcs reaches it."""
        layer = dict(enumerate(self.layer)) | {
            bend: number for (_, _, number), bend in self.bends.items()
        }
        below: dict[int, dict[int, None]] = {}
        for upper, lower, _, _ in self.segments:
            below.setdefault(upper, {})[lower] = None
        found: list[list[int]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
        seen: set[int] = set()
        for start in sorted(layer, key=lambda node: (layer[node], node)):
            pending = [start]
            while pending:
                node = pending.pop()
                if node not in seen:
                    seen.add(node)
                    found[layer[node]].append(node)
                    pending.extend(reversed(below.get(node, {})))
        return tuple(tuple(nodes) for nodes in found if nodes)
