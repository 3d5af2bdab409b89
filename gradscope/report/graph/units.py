"""Units of the arrangement, and the routes of links between them through boxes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Literal

from gradscope.frozen import dataclass
from gradscope.report.graph.drawing import Frame
from gradscope.report.graph.labels import vertex_size
from gradscope.report.graph.layers import Item, Rank
from gradscope.report.graph.vertices import GraphPart, Link, Vertex

_CHIP_GAP = 4.0
_SIDE_GAP = 20.0
_COLUMN = 8
"""Number of parameters without links in a column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Vertices that are placed as one."""

    first: int
    """Vertex that gives the unit its position in the order of the forward."""
    item: Item
    frames: Mapping[int, Frame]
    """Frames of the vertices, relative to the axis and the upper edge."""


@dataclass(slots=True)
class Units:
    """The units of a graph, by the box they are in."""

    part: GraphPart
    chips: dict[int, list[int]] = field(init=False, default_factory=dict)
    """By operation: the parameters that are drawn beside it."""
    chip_links: set[int] = field(init=False, default_factory=set)
    """Indices of the links from these parameters."""
    of_box: dict[int | None, list[Unit]] = field(init=False, default_factory=dict)
    unit_of: dict[int, Unit] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        out: dict[int, list[int]] = {}
        linked: set[int] = set()
        for position, link in enumerate(self.part.links):
            out.setdefault(link.source, []).append(position)
            linked.add(link.target)
            # If a cut separates a whole box, the link begins at the box.
            if link.kind != "cut" or link.box is None:
                linked.add(link.source)
        self._find_chips(out)
        loose: dict[int | None, list[Vertex]] = {}
        beside = {chip for chips in self.chips.values() for chip in chips}
        for vertex in self.part.vertices:
            if vertex.kind == "parameter" and vertex.index not in linked:
                loose.setdefault(vertex.box, []).append(vertex)
            elif vertex.index not in beside:
                self._add(vertex.box, self._with_chips(vertex))
        for box, vertices in loose.items():
            self._add(box, _column(vertices))

    def _find_chips(self, out: Mapping[int, Sequence[int]]) -> None:
        vertices = self.part.vertices
        targets = {link.target for link in self.part.links}
        for source, positions in out.items():
            link = self.part.links[positions[0]]
            # A parameter that several operations use stands by itself.
            if len(positions) > 1 or source in targets:
                continue
            if _is_beside(vertices[source], vertices[link.target], link):
                self.chips.setdefault(link.target, []).append(source)
                self.chip_links.add(positions[0])

    def _add(self, box: int | None, unit: Unit) -> None:
        self.of_box.setdefault(box, []).append(unit)
        for vertex in unit.frames:
            self.unit_of[vertex] = unit

    def _with_chips(self, vertex: Vertex) -> Unit:
        width, height = vertex_size(vertex)
        chips = [self.part.vertices[chip] for chip in self.chips.get(vertex.index, ())]
        sizes = [vertex_size(chip) for chip in chips]
        stack = sum(size[1] + _CHIP_GAP for size in sizes) - _CHIP_GAP if sizes else 0.0
        column = max((size[0] for size in sizes), default=0.0)
        whole = max(height, stack)
        frames = {
            vertex.index: Frame(x=-width / 2, y=(whole - height) / 2, width=width, height=height)
        }
        edge = (whole - stack) / 2
        for chip, (_, tall) in zip(chips, sizes, strict=True):
            left = -width / 2 - _SIDE_GAP - column
            frames[chip.index] = Frame(x=left, y=edge, width=column, height=tall)
            edge += tall + _CHIP_GAP
        left = width / 2 + (column + _SIDE_GAP if chips else 0.0)
        item = Item(left=left, right=width / 2, height=whole, rank=_rank(vertex))
        return Unit(first=vertex.index, item=item, frames=frames)


def _is_beside(parameter: Vertex, user: Vertex, link: Link) -> bool:
    return (
        parameter.kind == "parameter"
        and user.kind in ("operation", "module")
        and parameter.box == user.box
        and link.kind == "gradient"
    )


def _rank(vertex: Vertex) -> Rank:
    if vertex.kind != "outside":
        return "inner"
    return "last" if vertex.label == "after" else "first" if vertex.label == "before" else "inner"


def _column(vertices: Sequence[Vertex]) -> Unit:
    """Return parameters without links, one below the other."""
    sizes = [vertex_size(vertex) for vertex in vertices]
    width = max(size[0] for size in sizes)
    # Parameters are equally tall.
    tall = sizes[0][1] + _CHIP_GAP
    columns = -(-len(vertices) // _COLUMN)
    whole = columns * (width + _CHIP_GAP) - _CHIP_GAP
    frames = {
        vertex.index: Frame(
            x=position // _COLUMN * (width + _CHIP_GAP) - whole / 2,
            y=position % _COLUMN * tall,
            width=width,
            height=size[1],
        )
        for position, (vertex, size) in enumerate(zip(vertices, sizes, strict=True))
    }
    height = min(len(vertices), _COLUMN) * tall - _CHIP_GAP
    item = Item(left=whole / 2, right=whole / 2, height=height)
    return Unit(first=vertices[0].index, item=item, frames=frames)


@dataclass(frozen=True, slots=True)
class Stop:
    """Start or end of a piece of a link: a unit, a box, or a port in the frame of a box."""

    kind: Literal["unit", "box", "in", "out"]
    number: int
    """First vertex of the unit, or the box, or the source vertex of a port."""
    box: int | None = None
    """Box whose port it is; None for no port."""

    def item_in(self, box: int | None) -> "Stop":
        """Return what of the content of a box it belongs to: a port of a box in it is that box."""
        if self.box is None or self.box == box:
            return self
        return Stop("box", self.box)


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a link inside one box, outside the boxes in it."""

    box: int | None
    source: Stop
    target: Stop


Way = tuple[Piece, ...]


@dataclass(slots=True)
class Routes:
    """The routes of all links, and the ports that they need in each box."""

    part: GraphPart
    units: Units
    ways: dict[int, tuple[Way, ...]] = field(init=False, default_factory=dict)
    """By index of the link: its lines, one, or two for a link to the next copy."""
    arcs: dict[int | None, dict[Piece, None]] = field(init=False, default_factory=dict)
    """Pieces of links in each box."""
    ports: dict[int | None, dict[Stop, None]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        entries = self._entries()
        for position, link in enumerate(self.part.links):
            if position not in self.units.chip_links:
                self.ways[position] = tuple(self._ways(link, entries))
        for ways in self.ways.values():
            for piece in (piece for way in ways for piece in way):
                self.arcs.setdefault(piece.box, {})[piece] = None
                for stop in (piece.source, piece.target):
                    if stop.box is not None:
                        self.ports.setdefault(stop.box, {})[stop] = None

    def around(self, box: int | None) -> tuple[int | None, ...]:
        """Return the boxes around a position, the whole drawing first."""
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
        if link.kind == "next" and link.box is not None:
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
        """Yield the pieces out of boxes, given with the outermost first."""
        for box in reversed(boxes):
            stop = Stop("out", port, box)
            yield Piece(box, start, stop)
            start = stop

    def _into(self, boxes: Sequence[int | None], end: Stop, port: int) -> Iterator[Piece]:
        stops = [*(Stop("in", port, box) for box in boxes), end]
        for position, box in enumerate(boxes):
            yield Piece(box, stops[position], stops[position + 1])
