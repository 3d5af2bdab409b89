"""How links lead through boxes: what they stop at in each on their way."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gradscope.report.graph.units import Units
from gradscope.report.graph.vertices import GraphPart, Link


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a piece of a link begins or ends: at a unit, a box, or a port in the frame of one."""

    kind: Literal["unit", "box", "in", "out"]
    number: int
    """The unit's first vertex, the box, or the vertex that what comes through the port is from."""
    box: int | None = None
    """Whose port it is."""

    def item_in(self, box: int | None) -> "Stop":
        """Return what of the content of a box it belongs to: a port of a box in it is that box."""
        if self.box is None or self.box == box:
            return self
        return Stop("box", self.box)


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a link that lies in one box, outside of the boxes in that."""

    box: int | None
    source: Stop
    target: Stop


Way = tuple[Piece, ...]


@dataclass(slots=True)
class Routes:
    """The ways of all links, and what they need in each box."""

    part: GraphPart
    units: Units
    ways: dict[int, tuple[Way, ...]] = field(init=False, default_factory=dict)
    """By place of the link: one; of a link to the next copy two."""
    arcs: dict[int | None, dict[Piece, None]] = field(init=False, default_factory=dict)
    """The pieces in each box."""
    ports: dict[int | None, dict[Stop, None]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        entries = self._entries()
        for place, link in enumerate(self.part.links):
            if place not in self.units.chip_links:
                self.ways[place] = tuple(self._ways(link, entries))
        for ways in self.ways.values():
            for piece in (piece for way in ways for piece in way):
                self.arcs.setdefault(piece.box, {})[piece] = None
                for stop in (piece.source, piece.target):
                    if stop.box is not None:
                        self.ports.setdefault(stop.box, {})[stop] = None

    def around(self, box: int | None) -> tuple[int | None, ...]:
        """Return the boxes around a place, from the whole drawing on."""
        found: list[int | None] = []
        while box is not None:
            found.append(box)
            box = self.part.boxes[box].parent
        return (None, *reversed(found))

    def _entries(self) -> dict[tuple[int, int], int]:
        """Return, by repeated box and source in it, which port its next copy is entered by.

        What the first copy gets from outside, the others get from the copy before them: by the same
        port, where it leads to the same vertices.
        """
        outer: dict[tuple[int, int], set[int]] = {}
        inner: dict[tuple[int, int], set[int]] = {}
        for link in self.part.links:
            if link.kind == "next" and link.box is not None:
                inner.setdefault((link.box, link.source), set()).add(link.target)
                continue
            source = self.around(self.part.vertices[link.source].box)
            for box in self.around(self.part.vertices[link.target].box):
                if box is not None and box not in source:
                    outer.setdefault((box, link.source), set()).add(link.target)
        by_targets = {(box, frozenset(targets)): port for (box, port), targets in outer.items()}
        return {
            (box, source): by_targets.get((box, frozenset(targets)), source)
            for (box, source), targets in inner.items()
        }

    def _ways(self, link: Link, entries: dict[tuple[int, int], int]) -> Iterator[Way]:
        source, target = (self.part.vertices[end] for end in (link.source, link.target))
        above, below = self.around(source.box), self.around(target.box)
        start = Stop("unit", self.units.unit_of[source.index].first)
        end = Stop("unit", self.units.unit_of[target.index].first)
        if link.kind == "next":
            assert link.box is not None
            level = above.index(link.box)
            yield tuple(self._out(above[level:], start, source.index))
            entry = entries[link.box, source.index]
            yield tuple(self._into(below[level:], end, entry))
            return
        if link.kind == "cut" and link.box is not None:
            above, start = self.around(self.part.boxes[link.box].parent), Stop("box", link.box)
        shared = sum(1 for one, other in zip(above, below, strict=False) if one == other)
        out = tuple(self._out(above[shared:], start, source.index))
        into = tuple(self._into(below[shared:], end, source.index))
        leaves = out[-1].target if out else start
        enters = into[0].source if into else end
        yield (*out, Piece(above[shared - 1], leaves, enters), *into)

    def _out(self, boxes: Sequence[int | None], start: Stop, port: int) -> Iterator[Piece]:
        """Yield the pieces out of boxes, given from the outermost on."""
        for box in reversed(boxes):
            stop = Stop("out", port, box)
            yield Piece(box, start, stop)
            start = stop

    def _into(self, boxes: Sequence[int | None], end: Stop, port: int) -> Iterator[Piece]:
        stops = [*(Stop("in", port, box) for box in boxes), end]
        for place, box in enumerate(boxes):
            yield Piece(box, stops[place], stops[place + 1])
