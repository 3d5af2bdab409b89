"""The vertices of a part of a graph, and the links between them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Literal

from gradscope.analysis.folding import span
from gradscope.analysis.recording_index import StepView
from gradscope.analysis.report import Report
from gradscope.frozen import dataclass
from gradscope.recording.cut_record import CutRecord
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.report.graph.boxes import Path
from gradscope.report.graph.labels import module_reach
from gradscope.report.graph.tensor_links import (
    TensorLinks,
    cut_label,
    cut_location,
    node_location,
    output_shape,
)
from gradscope.report.graph.vertices import Box, Link, LinkKind, Severities, Vertex
from gradscope.report.number_format import shape_text


@dataclass(slots=True)
class VertexMaker:
    """Makes vertices that have no index yet."""

    report: Report
    view: StepView
    severities: Severities = field(init=False)

    def __post_init__(self) -> None:
        self.severities = Severities.of(self.report)

    def module(self, modules: Sequence[int], name: str, copies: int = 1) -> Vertex:
        """Return a module with all that is in it, or several that are alike."""
        rows = [self.report.modules[module] for module in modules]
        return Vertex(
            index=0,
            kind="module",
            label=rows[0].path if copies == 1 else f"{rows[0].path} … {rows[-1].path}",
            name=name,
            modules=tuple(modules),
            copies=copies,
            class_name=rows[0].class_name,
            norms=span(row.grad_norm for row in rows),
            reach=module_reach(rows[0]),
            severity=self.severities.of_modules(modules),
        )

    def parameter(self, parameters: Sequence[int]) -> Vertex:
        """Return a parameter, or the same one of several modules that are alike."""
        rows = [self.report.parameters[parameter] for parameter in parameters]
        return Vertex(
            index=0,
            kind="parameter",
            label=rows[0].name if len(rows) == 1 else f"{rows[0].name} … {rows[-1].name}",
            name=rows[0].name.rpartition(".")[2],
            parameters=tuple(parameters),
            copies=len(rows),
            detail=shape_text(rows[0]),
            norms=span(None if row.grad is None else row.grad.norm for row in rows),
            reach=rows[0].reach,
            severity=self.severities.of_parameters(parameters),
        )

    def operation(self, node: NodeRecord) -> Vertex:
        """Return an operation, or a leaf that is no parameter."""
        return Vertex(
            index=0,
            kind=node.kind,
            label=node.operation,
            detail=output_shape(node),
            position=node_location(self.view, node),
        )

    def cut(self, cut: CutRecord) -> Vertex:
        """Return the line that cuts a gradient off."""
        position = cut_location(self.view, cut)
        return Vertex(index=0, kind="cut", label=cut_label(cut), detail=position, position=position)


Key = tuple[Literal["node", "module", "parameter", "cut", "before", "after", "rest"], int]
"""What a vertex represents; a node, a module or a parameter may have copies."""

BEFORE: Key = ("before", 0)
AFTER: Key = ("after", 0)


@dataclass(frozen=True, slots=True)
class Ends:
    """Source and target of a link."""

    source: Key
    target: Key
    kind: LinkKind
    box: int | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """The vertex that contains a node, and the copy."""

    key: Key
    path: Path
    turn: int | None = None
    """Turn of an unrolled loop; None outside of loops."""


@dataclass(slots=True)
class PartLinks:
    """Gathers the links."""

    tensors: TensorLinks
    positions: Mapping[int, Position]
    """Position of each vertex, by node."""
    found: dict[Ends, dict[object, dict[TensorRef, None]]] = field(default_factory=dict)
    """Tensors of each link, by the copies that contain them."""

    def add_tensors(self) -> None:
        """Add the links along which gradients come back."""
        for ref, consumer in self.tensors.between(self.is_passed):
            source, target = self.positions.get(ref.node), self.positions.get(consumer)
            if source is None and target is None:
                continue
            ends = _ends(source, target)
            # What stays within a vertex is not drawn.
            if ends.source != ends.target or ends.kind == "next":
                copy = (_copies(source), _copies(target))
                refs = self.found.setdefault(ends, {}).setdefault(copy, {})
                refs[self.tensors.view.measured(ref)] = None

    def is_passed(self, node: NodeRecord) -> bool:
        """Return whether a node is skipped: it passes on a gradient, and belongs to no vertex."""
        return node.kind == "view" and node.index not in self.positions

    def add_cut(self, cut: int, sources: Mapping[Key, int | None], record: CutRecord) -> None:
        """Add the links through a cut.

        Args:
            cut: Which one.
            sources: What it cuts off, with the box that it cuts off as a whole.
            record: The cut.
        """
        key: Key = ("cut", cut)
        for source, box in sources.items():
            self.found[Ends(source, key, "cut", box)] = {}
        for node in record.joins:
            for user in self.tensors.users(node, self.is_passed):
                position = self.positions.get(user)
                self.found[Ends(key, AFTER if position is None else position.key, "cut")] = {}

    def keys(self) -> Iterator[Key]:
        """Yield the linked keys."""
        for ends in self.found:
            yield ends.source
            yield ends.target

    def links(self, indices: Mapping[Key, int]) -> Iterable[Link]:
        """Return the links between vertices, given by what they represent."""
        made = (
            Link(
                source=indices[ends.source],
                target=indices[ends.target],
                norms=span(self.tensors.norm(refs) for refs in copies.values()),
                tensors=max(map(len, copies.values()), default=0),
                kind="next" if _goes_back(ends, indices) else ends.kind,
                box=ends.box,
            )
            for ends, copies in self.found.items()
        )
        return sorted(made, key=lambda link: (link.source, link.target, link.kind))


def _ends(source: Position | None, target: Position | None) -> Ends:
    if source is None or target is None:
        above = BEFORE if source is None else source.key
        return Ends(above, AFTER if target is None else target.key, "gradient")
    box = next_copy(source.path, target.path)
    return Ends(source.key, target.key, "gradient" if box is None else "next", box)


def _copies(position: Position | None) -> tuple[int | None, ...]:
    if position is None:
        return ()
    return (*(copy for _, copy in position.path), position.turn)


def _goes_back(ends: Ends, indices: Mapping[Key, int]) -> bool:
    """Return whether a link leads to what comes earlier: to a later turn of a loop."""
    is_inner = all(kind in ("node", "module") for kind, _ in (ends.source, ends.target))
    return is_inner and ends.kind == "gradient" and indices[ends.source] > indices[ends.target]


def next_copy(one: Path, other: Path) -> int | None:
    """Return the box in which two paths lead into different copies; None without one."""
    for (box, copy), (other_box, other_copy) in zip(one, other, strict=False):
        if box != other_box:
            return None
        if copy != other_copy:
            return box
    return None


def whole_boxes(
    behind: Iterable[Key], boxes_of: Mapping[Key, int | None], boxes: list[Box]
) -> dict[Key, int | None]:
    """Return the parts that are cut off, and the first vertex of each box that is wholly cut off.

    Args:
        behind: The vertices that are cut off.
        boxes_of: By vertex, in their order: the box that it is in.
        boxes: All boxes.
    """
    cut_off = set(behind)
    counts: dict[int, list[int]] = {}
    around: dict[Key, list[int]] = {}
    for key, box in boxes_of.items():
        around[key] = list(_around(box, boxes))
        for outer in around[key]:
            count = counts.setdefault(outer, [0, 0])
            count[0] += 1
            count[1] += key in cut_off
    found: dict[Key, int | None] = {}
    seen: set[int] = set()
    for key in boxes_of:
        if key in cut_off:
            whole = [box for box in around[key] if counts[box][0] == counts[box][1]]
            if not whole:
                found[key] = None
            elif whole[-1] not in seen:
                seen.add(whole[-1])
                found[key] = whole[-1]
    return found


def _around(box: int | None, boxes: list[Box]) -> Iterator[int]:
    while box is not None:
        yield box
        box = boxes[box].parent
