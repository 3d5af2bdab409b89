"""A drawing of each module's content, one level deep, which readers open one by one."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from gradscope.analysis.folding import Span, span
from gradscope.analysis.recording_index import StepView, first_step
from gradscope.analysis.report import Report
from gradscope.analysis.rows import ModuleRow
from gradscope.recording.records import NodeRecord, TensorRef
from gradscope.report.graph.drawing import Drawing
from gradscope.report.graph.drawing_columns import drawing_columns
from gradscope.report.graph.labels import below
from gradscope.report.graph.layout import Arrangements, lay_out
from gradscope.report.graph.loops import unrolled
from gradscope.report.graph.part_vertices import VertexMaker
from gradscope.report.graph.tensor_links import TensorLinks, cut_module, cuts_of, module_of
from gradscope.report.graph.vertices import GraphPart, Link, LinkKind, Vertex, shortened_part
from gradscope.report.html.page import Chart

WHOLE = -1
"""Stands for the whole graph: the models, and everything outside all modules."""

MOST_VERTICES = 150

_LISTED = 64
"""Lists with more modules than this are one vertex in the module around them."""

_Kind = Literal["module", "node", "parameter", "cut", "before", "after"]

_Member = tuple[_Kind, int]


def module_drawings(report: Report, most: int = MOST_VERTICES) -> Mapping[int, Drawing]:
    """Return the drawing of the whole graph, by `WHOLE`, and of each module that holds something.

    In a drawing the modules below are one vertex each, and what lies before and after the module
    is one vertex each. Takes time by the size of the graph, however many modules there are.

    Args:
        report: Whose judged step it is; of a run there is nothing to draw.
        most: How many vertices a drawing may have. Of more, the middle of the forward is one.
    """
    insides = _Insides(report, first_step(report.recording))
    known: Arrangements = {}
    return {
        module: lay_out(shortened_part(insides.part(module), most), known)
        for module in sorted(insides.members)
    }


@dataclass(slots=True)
class _Bundle:
    """The tensors between two members."""

    kind: LinkKind
    refs: dict[TensorRef, None] = field(default_factory=dict)


@dataclass(slots=True)
class _Insides:
    """The content of each module, gathered in one walk over the graph."""

    report: Report
    view: StepView
    links: TensorLinks = field(init=False)
    members: dict[int, dict[_Member, list[int]]] = field(init=False, default_factory=dict)
    """By module: its content, each part with its nodes, in the order of the forward."""
    bundles: dict[int, dict[tuple[_Member, _Member], _Bundle]] = field(
        init=False, default_factory=dict
    )
    paths: dict[int, tuple[int, ...]] = field(init=False, default_factory=dict)
    """By module: the modules around it, and itself."""
    lists: set[int] = field(init=False, default_factory=set)
    """Modules that only contain a few others, which are drawn in their stead."""
    behind: set[_Member] = field(init=False, default_factory=set)
    drawn_as: dict[int, int] = field(init=False, default_factory=dict)
    """By node of a loop: the node that is drawn for all turns."""
    maker: VertexMaker = field(init=False)

    def __post_init__(self) -> None:
        self.links = TensorLinks(self.report, self.view)
        self.maker = VertexMaker(self.report, self.view)
        for row in self.report.modules:
            # Modules are listed after those around them.
            around = (WHOLE,) if row.parent is None else self.paths[row.parent]
            self.paths[row.index] = (*around, row.index)
        self._find_lists()
        turns = unrolled(self.links.in_order(), self._around)
        self.drawn_as = {node: turn.node for node, turn in turns.items()}
        self._add_nodes()
        self._add_unreached()
        passed = {node.index for node in self.view.nodes if node.kind == "view"}
        for ref, consumer in self.links.between(lambda node: node.index in passed):
            if ref.node not in passed:
                self._join(("node", ref.node), ("node", consumer), "gradient", ref)
        self._add_cuts()

    def part(self, module: int) -> GraphPart:
        """Return the part of a module that is drawn."""
        members = dict(self.members[module])
        bundles = self.bundles.get(module, {})
        for pair in bundles:
            for member in pair:
                members.setdefault(member, [])
        positions = {member: position for position, member in enumerate(members)}
        vertices = tuple(
            self._vertex(positions[member], member, nodes) for member, nodes in members.items()
        )
        links = (
            Link(
                source=positions[source],
                target=positions[target],
                norms=_single(self.links.norm(bundle.refs)),
                tensors=len(bundle.refs),
                kind=bundle.kind,
            )
            for (source, target), bundle in bundles.items()
        )
        ordered = sorted(links, key=lambda link: (link.source, link.target))
        return GraphPart(vertices=vertices, links=tuple(ordered))

    def _find_lists(self) -> None:
        children = Counter(row.parent for row in self.report.modules)
        for row in self.report.modules:
            is_list = not row.calls and not row.own_parameters and row.parent is not None
            if is_list and 0 < children[row.index] <= _LISTED:
                self.lists.add(row.index)

    def _around(self, node: NodeRecord) -> Iterator[tuple[int, int | None]]:
        for module, (kind, held) in self._positions(("node", node.index)):
            yield module, None if kind == "node" else held

    def _add_nodes(self) -> None:
        for node in self.links.in_order():
            if node.kind != "view":
                member: _Member = ("node", node.index)
                for around, held in self._positions(member):
                    self.members.setdefault(around, {}).setdefault(held, []).append(node.index)

    def _add_unreached(self) -> None:
        """Add the parameters that backward does not lead to, and modules without nodes."""
        seen = {node.parameter for node in self.view.nodes}
        for parameter in self.view.recording.parameters:
            if parameter.index not in seen:
                for around, held in self._positions(("parameter", parameter.index)):
                    self.members.setdefault(around, {}).setdefault(held, [])

    def _add_cuts(self) -> None:
        nodes = {
            node.parameter: node.index for node in self.view.nodes if node.parameter is not None
        }
        for position, cut in enumerate(cuts_of(self.view)):
            member: _Member = ("cut", position)
            for around, held in self._positions(member):
                self.members.setdefault(around, {}).setdefault(held, [])
            for parameter in cut.parameters:
                source: _Member = ("parameter", parameter)
                if parameter in nodes:
                    source = ("node", nodes[parameter])
                self.behind.update(held for _, held in self._positions(source))
                self._join(source, member, "cut", None)
            for join in cut.joins:
                for node in self.links.users(join, lambda node: node.kind == "view"):
                    self._join(member, ("node", node), "cut", None)

    def _home(self, member: _Member) -> tuple[int, ...]:
        """Return the modules around a node, a parameter or a cut."""
        kind, index = member
        if kind == "node":
            home = module_of(self.view, self.view.recording.nodes[index])
        elif kind == "parameter":
            home = self.view.recording.parameters[index].module
        else:
            home = cut_module(self.view, cuts_of(self.view)[index])
        return (WHOLE,) if home is None else self.paths[home]

    def _positions(self, member: _Member) -> Iterator[tuple[int, _Member]]:
        """Yield each module around a member, and what of it holds the member.

        What lies in a list of modules is held by the module around the list too.
        """
        kind, index = held = member
        if kind == "node":
            held = ("node", self.drawn_as.get(index, index))
        for module in reversed(self._home(member)):
            yield module, held
            if module not in self.lists:
                held = ("module", module)

    def _join(
        self, source: _Member, target: _Member, kind: LinkKind, ref: TensorRef | None
    ) -> None:
        above, below = dict(self._positions(source)), dict(self._positions(target))
        for module, member in above.items():
            other = below.get(module, ("after", 0))
            if member != other:
                self._bundle(module, member, other, kind, ref)
        for module, member in below.items():
            if module not in above:
                self._bundle(module, ("before", 0), member, kind, ref)

    def _bundle(
        self, module: int, source: _Member, target: _Member, kind: LinkKind, ref: TensorRef | None
    ) -> None:
        bundles = self.bundles.setdefault(module, {})
        bundle = bundles.setdefault((source, target), _Bundle(kind))
        if ref is not None:
            bundle.kind = "gradient"
            bundle.refs[self.view.measured(ref)] = None

    def _vertex(self, position: int, member: _Member, nodes: list[int]) -> Vertex:
        vertex = self._made(member)
        behind = member in self.behind
        copies = len(nodes) if member[0] == "node" and nodes else 1
        return replace(
            vertex, index=position, nodes=tuple(nodes), copies=copies, is_behind_cut=behind
        )

    def _made(self, member: _Member) -> Vertex:
        kind, index = member
        match kind:
            case "module":
                return self.maker.module((index,), self._name(self.report.modules[index]))
            case "parameter":
                return self.maker.parameter((index,))
            case "node":
                node = self.view.recording.nodes[index]
                if node.parameter is not None:
                    return self.maker.parameter((node.parameter,))
                return self.maker.operation(node)
            case "cut":
                return self.maker.cut(cuts_of(self.view)[index])
            case _:
                return Vertex(index=0, kind="outside", label=kind)

    def _name(self, row: ModuleRow) -> str:
        """Return a module's path relative to the module around it that is not a list."""
        parent = row.parent
        while parent is not None and parent in self.lists:
            parent = self.report.modules[parent].parent
        return below(row.path, "" if parent is None else self.report.modules[parent].path)


def _single(norm: float | None) -> Span | None:
    return span([norm])


MOST_DRAWN, FEWEST_VERTICES = 12_000, 3_000
"""Limits of all drawings together: about a megabyte, of which long tables need some."""


def inside_chart(report: Report) -> Chart | None:
    """Return the chart; None if the report has no graph, as for a training run."""
    every = module_drawings(report)
    if not every:
        return None
    drawings = _outermost(every, report)
    tensors: dict[int, int] = {}
    for position, row in enumerate(report.tensors):
        # A node with several outputs has several rows, of which the first is selected.
        tensors.setdefault(row.node, position)
    left_out = len(every) - len(drawings)
    return Chart(
        name="inside",
        kind="graph",
        title="Module graph",
        caption="Forward runs from top to bottom; links show gradient norms. Click a module to open"
        " it, drag to move, and use Ctrl and the wheel to zoom."
        + (
            f" The graphs of {left_out:,} inner modules are omitted to keep the file small."
            if left_out
            else ""
        ),
        content=drawing_columns(drawings, tensors),
        height=560,
    )


def _outermost(drawings: Mapping[int, Drawing], report: Report) -> Mapping[int, Drawing]:
    """Return the drawings of the outermost modules, as many as there is room for, in order."""
    paths = {module.index: module.path for module in report.recording.modules}

    def depth(module: int) -> int:
        path = paths.get(module, "")
        return 0 if module == WHOLE or not path else 1 + path.count(".")

    rows = len(report.parameters) + len(report.tensors)
    kept, room = set(), max(FEWEST_VERTICES, MOST_DRAWN - rows // 3)
    for module in sorted(drawings, key=lambda module: (depth(module), module)):
        room -= len(drawings[module].vertices)
        if room < 0:
            break
        kept.add(module)
    return {module: drawing for module, drawing in drawings.items() if module in kept}
