"""What is placed as one: an operation with its parameters beside it, or parameters in a column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gradscope.report.graph.drawing import Frame
from gradscope.report.graph.items import Item, Rank
from gradscope.report.graph.sizes import vertex_size
from gradscope.report.graph.vertices import GraphPart, Link, Vertex

_CHIP_GAP = 4.0
_SIDE_GAP = 20.0
_COLUMN = 8
"""Parameters without links stand in columns of so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Vertices that are placed as one."""

    first: int
    """The vertex by which it has its place in the order of the forward."""
    item: Item
    frames: Mapping[int, Frame]
    """Of its vertices, from its axis and upper edge."""


@dataclass(slots=True)
class Units:
    """The units of a graph, by the box they are in."""

    part: GraphPart
    chips: dict[int, list[int]] = field(init=False, default_factory=dict)
    """By operation: the parameters that are drawn beside it."""
    chip_links: set[int] = field(init=False, default_factory=set)
    """The places of the links that lead from those."""
    of_box: dict[int | None, list[Unit]] = field(init=False, default_factory=dict)
    unit_of: dict[int, Unit] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        out: dict[int, list[int]] = {}
        linked: set[int] = set()
        for place, link in enumerate(self.part.links):
            out.setdefault(link.source, []).append(place)
            linked.add(link.target)
            # Of a box that is cut off as a whole, the link begins at the box.
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
        for source, places in out.items():
            link = self.part.links[places[0]]
            if len(places) > 1 or source in targets:
                continue
            if _is_beside(vertices[source], vertices[link.target], link):
                self.chips.setdefault(link.target, []).append(source)
                self.chip_links.add(places[0])

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
    """Return parameters that nothing is linked with, one below the other."""
    sizes = [vertex_size(vertex) for vertex in vertices]
    width = max(size[0] for size in sizes)
    tall = sizes[0][1] + _CHIP_GAP
    columns = -(-len(vertices) // _COLUMN)
    whole = columns * (width + _CHIP_GAP) - _CHIP_GAP
    frames = {
        vertex.index: Frame(
            x=place // _COLUMN * (width + _CHIP_GAP) - whole / 2,
            y=place % _COLUMN * tall,
            width=width,
            height=size[1],
        )
        for place, (vertex, size) in enumerate(zip(vertices, sizes, strict=True))
    }
    height = min(len(vertices), _COLUMN) * tall - _CHIP_GAP
    item = Item(left=whole / 2, right=whole / 2, height=height)
    return Unit(first=vertices[0].index, item=item, frames=frames)
