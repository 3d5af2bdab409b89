"""Lays out a part of a graph: a box from its content, then as an item of the box around it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise

from gradscope.frozen import dataclass
from gradscope.report.graph.arrangement import Arrangement, Point, arrange
from gradscope.report.graph.drawing import (
    Drawing,
    Frame,
    PlacedBox,
    PlacedLink,
    PlacedVertex,
    with_norms,
)
from gradscope.report.graph.labels import BOX_FOOT, BOX_SIDE, BOX_TITLE, title_width
from gradscope.report.graph.layers import Arc, Item
from gradscope.report.graph.units import Piece, Routes, Stop, Units, Way
from gradscope.report.graph.vertices import Box, GraphPart, Link

MARGIN = 10.0
_PORT = 4.0

Arrangements = dict[tuple[tuple[Item, ...], tuple[Arc, ...]], Arrangement]
"""Cache of arrangements: equal modules are arranged once."""


def lay_out(part: GraphPart, known: Arrangements | None = None) -> Drawing:
    """Return the drawing of a part.

    Args:
        part: What to draw.
        known: Arrangements of other drawings, to be used again; new ones are added.
    """
    layout = _Layout(part, {} if known is None else known)
    # Boxes are listed before the boxes inside them.
    for box in reversed(part.boxes):
        layout.arrange_box(box)
    return layout.drawing()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Inside:
    """The content of a box, or of the whole drawing."""

    positions: Mapping[Stop, int]
    """Index of each content among the arranged items."""
    arcs: Mapping[Piece, int]
    arrangement: Arrangement
    width: float
    """Width of the frame."""
    left: float
    """Left edge of the content in the frame."""

    @property
    def axis(self) -> float:
        """Distance from the left edge to the first link on the frame, or to its middle."""
        for stop in self.positions:
            if stop.box is not None:
                return self.port(stop)
        return self.width / 2

    def port(self, stop: Stop) -> float:
        """Return the distance from the left edge to where a link crosses the frame."""
        return self.left + self.arrangement.positions[self.positions[stop]][0]


@dataclass(slots=True)
class _Layout:
    part: GraphPart
    known: Arrangements
    units: Units = field(init=False)
    routes: Routes = field(init=False)
    children: dict[int | None, list[Box]] = field(init=False, default_factory=dict)
    first: dict[int, int] = field(init=False, default_factory=dict)
    """By box: its first vertex."""
    insides: dict[int | None, _Inside] = field(init=False, default_factory=dict)
    corners: dict[int | None, Point] = field(init=False, default_factory=dict)
    """Upper left corner of each box's content."""

    def __post_init__(self) -> None:
        self.units = Units(self.part)
        self.routes = Routes(self.part, self.units)
        for box in self.part.boxes:
            self.children.setdefault(box.parent, []).append(box)
        for vertex in self.part.vertices:
            for around in self.routes.around(vertex.box)[1:]:
                assert around is not None
                self.first.setdefault(around, vertex.index)

    def arrange_box(self, box: Box) -> None:
        """Arrange the content of a box."""
        positions, arcs, arrangement = self._arranged(box.index)
        width = max(arrangement.width + 2 * BOX_SIDE, title_width(box))
        self.insides[box.index] = _Inside(
            positions=positions,
            arcs=arcs,
            arrangement=arrangement,
            width=width,
            left=(width - arrangement.width) / 2,
        )

    def drawing(self) -> Drawing:
        """Return the finished drawing."""
        positions, arcs, whole = self._arranged(None)
        self.insides[None] = _Inside(
            positions=positions, arcs=arcs, arrangement=whole, width=whole.width, left=0.0
        )
        self.corners[None] = (MARGIN, MARGIN)
        boxes = tuple(PlacedBox(box=box, frame=self._box_frame(box)) for box in self.part.boxes)
        frames = dict(self._vertex_frames())
        drawing = Drawing(
            width=whole.width + 2 * MARGIN,
            height=whole.height + 2 * MARGIN,
            boxes=boxes,
            vertices=tuple(
                PlacedVertex(vertex=vertex, frame=frames[vertex.index])
                for vertex in self.part.vertices
            ),
            links=(),
        )
        links = [
            self._placed(position, link, frames) for position, link in enumerate(self.part.links)
        ]
        return replace(drawing, links=with_norms(drawing, links))

    def _arranged(self, box: int | None) -> tuple[dict[Stop, int], dict[Piece, int], Arrangement]:
        """Return the positions of a box's content, those of the pieces of links, and everything."""
        content = self._content(box)
        positions = {stop: position for position, (stop, _) in enumerate(content)}
        pieces = self.routes.arcs.get(box, {})
        arcs = [
            Arc(
                source=positions[piece.source.item_in(box)],
                target=positions[piece.target.item_in(box)],
                out=self._offset(piece.source, box),
                into=self._offset(piece.target, box),
            )
            for piece in pieces
        ]
        key = (tuple(item for _, item in content), (*arcs, *_chain(content, arcs)))
        if key not in self.known:
            self.known[key] = arrange(*key)
        return (
            positions,
            {piece: position for position, piece in enumerate(pieces)},
            self.known[key],
        )

    def _content(self, box: int | None) -> list[tuple[Stop, Item]]:
        """Return the content of a box: entries, items in the order of the forward, exits."""
        inner = [
            (unit.first, Stop("unit", unit.first), unit.item)
            for unit in self.units.of_box.get(box, ())
        ]
        inner += [
            (self.first[child.index], Stop("box", child.index), self._item(child))
            for child in self.children.get(box, ())
        ]
        inner.sort(key=lambda entry: entry[0])
        ports = self.routes.ports.get(box, {}) if box is not None else {}
        way_in = Item(left=_PORT, right=_PORT, height=0.0, rank="first")
        way_out = Item(left=_PORT, right=_PORT, height=0.0, rank="last")
        return [
            *((stop, way_in) for stop in ports if stop.kind == "in"),
            *((stop, item) for _, stop, item in inner),
            *((stop, way_out) for stop in ports if stop.kind == "out"),
        ]

    def _item(self, box: Box) -> Item:
        inside = self.insides[box.index]
        height = BOX_TITLE + inside.arrangement.height + BOX_FOOT
        return Item(left=inside.axis, right=inside.width - inside.axis, height=height)

    def _offset(self, stop: Stop, box: int | None) -> float:
        """Return the distance from the axis of an item at which a link stops."""
        if stop.box is None or stop.box == box:
            return 0.0
        inside = self.insides[stop.box]
        return inside.port(stop) - inside.axis

    def _box_frame(self, box: Box) -> Frame:
        """Return a box's position, and store that of its content."""
        inside, around = self.insides[box.index], self.insides[box.parent]
        corner = self.corners[box.parent]
        axis, top = around.arrangement.positions[around.positions[Stop("box", box.index)]]
        x, y = corner[0] + axis - inside.axis, corner[1] + top
        self.corners[box.index] = (x + inside.left, y + BOX_TITLE)
        return Frame(x=x, y=y, width=inside.width, height=self._item(box).height)

    def _vertex_frames(self) -> Iterator[tuple[int, Frame]]:
        for box, units in self.units.of_box.items():
            inside, corner = self.insides[box], self.corners[box]
            for unit in units:
                axis, top = inside.arrangement.positions[inside.positions[Stop("unit", unit.first)]]
                for vertex, frame in unit.frames.items():
                    yield (
                        vertex,
                        Frame(
                            x=corner[0] + axis + frame.x,
                            y=corner[1] + top + frame.y,
                            width=frame.width,
                            height=frame.height,
                        ),
                    )

    def _placed(self, position: int, link: Link, frames: Mapping[int, Frame]) -> PlacedLink:
        source, target = frames[link.source], frames[link.target]
        if position in self.units.chip_links:
            level = source.y + source.height / 2
            # Within the height of the operation, and off its round corners.
            reach = (max(target.y + 4.0, min(level, target.bottom - 4.0)), target.x)
            way = ((source.right, level), (reach[1], reach[0]))
            return PlacedLink(link=link, ways=(way,), is_back=False, is_beside=True)
        routes = self.routes.ways[position]
        ways = [self._points(way) for way in routes]
        is_back = any(
            self.insides[piece.box].arrangement.is_back[self.insides[piece.box].arcs[piece]]
            for way in routes
            for piece in way
        )
        if link.box is None or link.kind == "next":
            ways[0].insert(0, (ways[0][0][0], source.bottom))
        ways[-1].append((ways[-1][-1][0], target.y))
        return PlacedLink(link=link, ways=tuple(map(_distinct, ways)), is_back=is_back)

    def _points(self, way: Way) -> list[Point]:
        points: list[Point] = []
        for piece in way:
            inside, corner = self.insides[piece.box], self.corners[piece.box]
            for x, y in inside.arrangement.ways[inside.arcs[piece]]:
                points.append((corner[0] + x, corner[1] + y))
        return points


def _distinct(points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points without those that follow the same, or a way straight to the next."""
    found: list[Point] = []
    for point in points:
        if len(found) > 1 and found[-2][0] == found[-1][0] == point[0]:
            found.pop()
        if not found or found[-1] != point:
            found.append(point)
    return tuple(found)


def _chain(content: Sequence[tuple[Stop, Item]], arcs: Sequence[Arc]) -> list[Arc]:
    """Return arcs that put boxes without links below each other, in their order."""
    linked = {end for arc in arcs for end in (arc.source, arc.target)}
    loose = [
        position
        for position, (stop, _) in enumerate(content)
        if stop.kind == "box" and position not in linked
    ]
    return [Arc(source=one, target=other) for one, other in pairwise(loose)]
