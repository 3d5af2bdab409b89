"""Puts the items of a drawing into layers, so that links lead from a layer to ones below it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gradscope.report.graph.items import Arc, Item
from gradscope.report.graph.ranks import ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The part of a link between one layer and the next."""

    upper: int
    lower: int
    out: float
    into: float
    weight: int
    """How much it matters that it is straight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredGraph:
    """Items and bends in layers; where a link passes through a layer, it has a bend there."""

    layers: tuple[tuple[int, ...], ...]
    """Top to bottom. Numbers from that of the items on are bends."""
    segments: tuple[Segment, ...]
    ways: tuple[tuple[int, ...], ...]
    """What each arc goes through, from its source to its target. One that leads up has a bend in
    the layers of both too: it leaves its source below, and comes to its target from above."""
    is_back: tuple[bool, ...]
    """Of each arc: whether it leads up, as links that go round in a circle must somewhere."""


def layered(items: Sequence[Item], arcs: Sequence[Arc]) -> LayeredGraph:
    """Return the items in layers; their order is that of the forward, as far as links allow."""
    return _Layering(items, arcs).build()


@dataclass(slots=True)
class _Layering:
    items: Sequence[Item]
    arcs: Sequence[Arc]
    layer: list[int] = field(init=False, default_factory=list)
    bends: dict[tuple[int, float, int], int] = field(init=False, default_factory=dict)
    """By upper end of the arcs, where they leave it, and layer: they share bends on their way."""
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
            # It shares no bend with others, which are told apart by items.
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
        weight = (4, 1, 8)[bends]
        self.segments[upper, lower, out, into] = Segment(
            upper=upper, lower=lower, out=out, into=into, weight=weight
        )

    def _layers(self) -> tuple[tuple[int, ...], ...]:
        """Return the layers, each in the order in which a walk along the arcs comes to it."""
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
