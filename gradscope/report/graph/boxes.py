"""The boxes that modules are drawn as: equal siblings share one."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gradscope.analysis.folding import FoldedModule, last_name, span
from gradscope.analysis.recording_index import StepView, created
from gradscope.analysis.report import Report
from gradscope.analysis.rows import ModuleRow
from gradscope.recording.records import NodeRecord
from gradscope.report.graph.labels import below
from gradscope.report.graph.tensor_links import module_of
from gradscope.report.graph.vertices import Box, GraphPart, Severities


@dataclass(slots=True)
class Contents:
    """The own contents of each module."""

    report: Report
    view: StepView
    severities: Severities
    nodes: dict[int, list[NodeRecord]] = field(init=False, default_factory=dict)
    """By module: its operations, in the order of the forward."""
    parameters: dict[int, dict[str, int]] = field(init=False, default_factory=dict)
    """By module: its parameters, by their name in the module."""

    def __post_init__(self) -> None:
        for node in sorted(self.view.nodes, key=created):
            home = module_of(self.view, node)
            if home is not None and node.parameter is None:
                self.nodes.setdefault(home, []).append(node)
        for record in self.view.recording.parameters:
            names = self.parameters.setdefault(record.module, {})
            names[record.name.rpartition(".")[2]] = record.index

    def mark(self, row: ModuleRow) -> Hashable:
        """Return what modules have to agree in to be drawn as one."""
        held = []
        for name, index in self.parameters.get(row.index, {}).items():
            one = self.report.parameters[index]
            state = one.grad and (one.grad.norm == 0.0, one.grad.is_broken)
            held.append((name, one.shape, one.dtype, one.reach, state))
        made = tuple((node.operation, node.kind) for node in self.nodes.get(row.index, ()))
        found = self.severities.modules.get(row.index)
        return (made, tuple(held), len(row.calls), row.grad_norm is None, found)

    def twins(
        self, copies: Mapping[int, Sequence[ModuleRow]]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Map each node and parameter of a copy to that of the module that is drawn."""
        nodes: dict[int, int] = {}
        parameters: dict[int, int] = {}
        for first, rows in copies.items():
            for row in rows[1:]:
                pairs = zip(self.nodes.get(row.index, ()), self.nodes.get(first, ()), strict=True)
                nodes.update((one.index, other.index) for one, other in pairs)
                own = self.parameters.get(first, {})
                for name, index in self.parameters.get(row.index, {}).items():
                    parameters[index] = own[name]
        return nodes, parameters


Path = tuple[tuple[int, int], ...]
"""Boxes, outermost first, each with the index of the copy."""


@dataclass(slots=True)
class Boxes:
    """A box for each folded module, and for each pattern of siblings that repeats."""

    severities: Severities
    drops_lists: bool
    """Whether the content of a list of modules is drawn in place of the list."""
    boxes: list[Box] = field(default_factory=list)
    paths: dict[int, Path] = field(default_factory=dict)
    """By module: the boxes around its content."""
    around: dict[int, Path] = field(default_factory=dict)
    """By module: the boxes around it."""
    drawn_as: dict[int, int] = field(default_factory=dict)
    """By module: the module that is drawn for it; itself if it is drawn."""
    copies: dict[int, tuple[ModuleRow, ...]] = field(default_factory=dict)
    """By drawn module: all modules that it represents."""
    names: dict[int, tuple[str, int]] = field(default_factory=dict)
    """By drawn module: its name in the box around it, and the number of copies."""

    def add(self, tree: FoldedModule) -> None:
        """Add the boxes of a tree of modules."""
        self._add(tree, None, [()], tree.copies)

    def _add(
        self, tree: FoldedModule, parent: int | None, around: Sequence[Path], copies: int
    ) -> None:
        """Add a module.

        Args:
            tree: The module, and what is in it.
            parent: The box around it.
            around: The paths to the modules that it lies in, one after the other.
            copies: How often it is in the box around it.
        """
        first = tree.rows[0]
        self.drawn_as.update((row.index, first.index) for row in tree.rows)
        self.copies[first.index] = tree.rows
        # Rows come copy by copy, with one for each path around them.
        names = [below(row.path, self._around(parent)) for row in tree.rows[:: len(around)]]
        name = names[0] if copies == 1 else f"{names[0]} … {names[-1]}"
        self.names[first.index] = (name, copies)
        turns = [
            (position // len(around), position % len(around)) for position in range(len(tree.rows))
        ]
        self.around.update(
            (row.index, around[outer]) for row, (_, outer) in zip(tree.rows, turns, strict=True)
        )
        if self._is_list(tree):
            paths = [around[outer] for _, outer in turns]
        else:
            box = self._box(parent, tree.rows, name, copies)
            paths = [(*around[outer], (box, turn if copies > 1 else 0)) for turn, outer in turns]
            parent = box
        self.paths.update((row.index, path) for row, path in zip(tree.rows, paths, strict=True))
        self._add_children(tree, parent, paths)

    def _add_children(self, tree: FoldedModule, parent: int | None, around: Sequence[Path]) -> None:
        position = 0
        while position < len(tree.children):
            length = _pattern(tree.children, position, len(around))
            child = tree.children[position]
            if length == 1:
                self._add(child, parent, around, child.copies)
            else:
                self._add_pattern(tree.children[position : position + length], parent, around)
            position += length

    def _add_pattern(
        self, members: Sequence[FoldedModule], parent: int | None, around: Sequence[Path]
    ) -> None:
        """Add siblings that repeat in turn, as Linear and ReLU, in a box of their own."""
        copies = members[0].copies
        first, last = members[0].rows[0], members[-1].rows[-1]
        base = self._around(parent)
        name = f"{below(first.path, base)} … {below(last.path, base)}"
        box = self._box(parent, (), name, copies)
        inner = [(*path, (box, turn)) for turn in range(copies) for path in around]
        for member in members:
            self._add(member, box, inner, 1)

    def _box(self, parent: int | None, rows: Sequence[ModuleRow], name: str, copies: int) -> int:
        modules = tuple(row.index for row in rows)
        self.boxes.append(
            Box(
                index=len(self.boxes),
                parent=parent,
                modules=modules,
                name=name,
                class_name=rows[0].class_name if rows else "",
                copies=copies,
                norms=span(row.grad_norm for row in rows),
                severity=self.severities.of_boxes(modules),
            )
        )
        return len(self.boxes) - 1

    def _around(self, box: int | None) -> str:
        """Return the path of the module that is drawn as a box, or of the one around it."""
        while box is not None:
            for module in self.boxes[box].modules:
                return self.copies[module][0].path
            box = self.boxes[box].parent
        return ""

    def _is_list(self, tree: FoldedModule) -> bool:
        return (
            self.drops_lists
            and bool(tree.children)
            and bool(tree.name)
            and not any(row.calls or row.own_parameters for row in tree.rows)
        )


def without_unused(part: GraphPart) -> GraphPart:
    """Return a part without the boxes that nothing is drawn in."""
    kept: set[int] = set()
    for vertex in part.vertices:
        box = vertex.box
        while box is not None and box not in kept:
            kept.add(box)
            box = part.boxes[box].parent
    positions: dict[int | None, int | None] = {None: None}
    positions.update((box, position) for position, box in enumerate(sorted(kept)))
    return replace(
        part,
        vertices=tuple(replace(one, box=positions[one.box]) for one in part.vertices),
        links=tuple(replace(one, box=positions[one.box]) for one in part.links),
        boxes=tuple(
            replace(box, index=position, parent=positions[box.parent])
            for position, box in enumerate(part.boxes[index] for index in sorted(kept))
        ),
    )


def _pattern(siblings: Sequence[FoldedModule], position: int, parents: int) -> int:
    """Return the length of the pattern that siblings repeat from here on; 1 for a single one."""
    rows, copies = siblings[position].rows, siblings[position].copies
    if copies == 1:
        return 1
    # In a pattern, a module comes again after all others: the distance is the length.
    length = int(last_name(rows[parents])) - int(last_name(rows[0]))
    members = siblings[position : position + length]
    return length if all(member.copies == copies for member in members) else 1
