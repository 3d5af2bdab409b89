"""The part of a graph that is drawn: modules are folded until it fits, views are omitted."""

from collections.abc import Sequence
from dataclasses import field, replace

from gradscope.analysis.folding import fold_modules
from gradscope.analysis.recording_index import StepView, first_step
from gradscope.analysis.report import Report
from gradscope.analysis.rows import ModuleRow
from gradscope.analysis.selection import modules_below
from gradscope.analysis.view import ViewOptions
from gradscope.frozen import dataclass
from gradscope.recording.records import NodeRecord
from gradscope.report.graph.boxes import Boxes, Contents, Path, without_unused
from gradscope.report.graph.loops import Turn, module_surroundings, unrolled
from gradscope.report.graph.part_vertices import Key, PartLinks, Position, VertexMaker, whole_boxes
from gradscope.report.graph.tensor_links import TensorLinks, cut_module, cuts_of, module_of
from gradscope.report.graph.vertices import GraphPart, Vertex

_OUTSIDE = {"before": "before", "after": "after", "rest": "outside of modules"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOptions:
    """What of the graph is wanted."""

    module: str | None = None
    depth: int | None = None
    """Depth below the model, or below `module`, at which each module is one vertex."""
    max_nodes: int | None = None
    has_views: bool = False
    """Whether nodes that pass on their neighbour's gradient are vertices too."""
    folds_repeats: bool = False
    """Whether equal siblings are drawn as one, and the turns of an unrolled loop."""


def graph_part(report: Report, options: GraphOptions) -> GraphPart:
    """Return the chosen part; the deepest modules are folded first until it fits.

    Raises:
        GradscopeError: The chosen module is not in the report.
    """
    chosen = modules_below(report, ViewOptions(module=options.module))
    return _Part(report, options, chosen).build()


@dataclass(slots=True)
class _Part:
    """Builds the part."""

    report: Report
    options: GraphOptions
    chosen: tuple[ModuleRow, ...]
    view: StepView = field(init=False)
    tensors: TensorLinks = field(init=False)
    maker: VertexMaker = field(init=False)
    boxes: Boxes = field(init=False)
    inside: set[int] = field(init=False)
    base: int = field(init=False)
    """Depth of the chosen modules."""
    limit: int | None = field(init=False)
    """Depth below `base` at which modules are folded; None for no folding."""
    nodes_like: dict[int, int] = field(init=False)
    """By node of a copy or of a turn: the node that is drawn."""
    turns: dict[int, Turn] = field(init=False, default_factory=dict)
    """By node: its turn in an unrolled loop."""
    parameters_like: dict[int, int] = field(init=False)
    same: dict[int, list[int]] = field(init=False, default_factory=dict)
    """By drawn parameter: all parameters that it represents."""

    def __post_init__(self) -> None:
        self.view = first_step(self.report.recording)
        self.tensors = TensorLinks(self.report, self.view)
        self.maker = VertexMaker(self.report, self.view)
        self.inside = {row.index for row in self.chosen}
        self.base = min((row.depth for row in self.chosen), default=0)
        folds = self.options.folds_repeats
        contents = Contents(self.report, self.view, self.maker.severities)
        self.boxes = Boxes(self.maker.severities, drops_lists=folds)
        for tree in fold_modules(
            self.chosen, lambda row: contents.mark(row) if folds else row.index
        ):
            self.boxes.add(tree)
        self.nodes_like, self.parameters_like = contents.twins(self.boxes.copies)
        if folds:
            self._fold_loops()
        for parameter in self.view.recording.parameters:
            like = self.parameters_like.get(parameter.index, parameter.index)
            self.same.setdefault(like, []).append(parameter.index)
        self.limit = self.options.depth
        self._fit()

    def _fold_loops(self) -> None:
        """Let the first turn of each loop represent the others."""
        drawn_as = self.boxes.drawn_as
        around = module_surroundings(
            self.report, self.view, lambda module: drawn_as.get(module, module)
        )
        self.turns = unrolled(self.tensors.in_order(), around)
        for node in self.turns:
            like = self.nodes_like.get(node, node)
            if like in self.turns:
                self.nodes_like[node] = self.turns[like].node

    def build(self) -> GraphPart:
        """Return it."""
        members = self._members()
        nodes = {node: key for key, held in members.items() for node in held}
        for parameter in self.view.recording.parameters:
            if parameter.module in self.inside:
                members.setdefault(self._parameter_key(parameter.index), [])
        links = PartLinks(
            self.tensors,
            {
                node: Position(key, self._path(node), self._turn(key, node))
                for node, key in nodes.items()
            },
        )
        links.add_tensors()
        boxes_of = {key: self._box(key) for key in members}
        behind = self._add_cuts(links, boxes_of)
        # Cuts, and what lies outside, are vertices because of their links.
        for key in (*boxes_of, *links.keys()):
            members.setdefault(key, [])
        indices = {key: position for position, key in enumerate(members)}
        vertices = tuple(
            replace(
                self._vertex(key, held),
                index=indices[key],
                nodes=tuple(held),
                box=boxes_of.get(key),
                is_behind_cut=key in behind,
            )
            for key, held in members.items()
        )
        folded = [vertex for vertex in vertices if vertex.kind == "module" and vertex.nodes]
        part = GraphPart(
            vertices=vertices,
            links=tuple(links.links(indices)),
            boxes=tuple(self.boxes.boxes),
            folded_nodes=sum(len(vertex.nodes) for vertex in folded),
            folded_modules=sum(len(vertex.modules) for vertex in folded),
        )
        return without_unused(part)

    def _fit(self) -> None:
        """Fold the deepest modules until the rest fits."""
        most = self.options.max_nodes
        if most is None or len(self._members()) <= most:
            return
        deepest = max((row.depth for row in self.chosen), default=0) - self.base
        self.limit = deepest if self.limit is None else min(self.limit, deepest)
        while self.limit > 0 and len(self._members()) > most:
            self.limit -= 1

    def _members(self) -> dict[Key, list[int]]:
        """Return the nodes of each vertex, in the order of the forward."""
        members: dict[Key, list[int]] = {}
        for node in self.tensors.in_order():
            key = self._key(node)
            if key is not None:
                members.setdefault(key, []).append(node.index)
        return members

    def _key(self, node: NodeRecord) -> Key | None:
        """Return the vertex that contains a node; None if the node is skipped or excluded."""
        home = module_of(self.view, node)
        if home is None:
            # What no module has made is not in the chosen one.
            if self.options.module:
                return None
        elif home not in self.inside:
            return None
        else:
            folded = self._folded(home)
            if folded is not None:
                return ("module", self.boxes.drawn_as[folded])
        if self.limit == 0:
            return ("rest", 0)
        if node.parameter is not None:
            return self._parameter_key(node.parameter)
        is_passed = node.kind == "view" and not self.options.has_views
        return None if is_passed else ("node", self.nodes_like.get(node.index, node.index))

    def _folded(self, module: int) -> int | None:
        """Return the module around one that is a vertex, or the module itself; None without one."""
        if self.limit is None:
            return None
        row = self.report.modules[module]
        while row.depth > self.base + self.limit and row.parent is not None:
            row = self.report.modules[row.parent]
        return row.index if row.depth == self.base + self.limit else None

    def _parameter_key(self, parameter: int) -> Key:
        folded = self._folded(self.view.recording.parameters[parameter].module)
        if folded is not None:
            return ("module", self.boxes.drawn_as[folded])
        return ("parameter", self.parameters_like.get(parameter, parameter))

    def _path(self, node: int) -> Path:
        """Return the boxes around the vertex that a node is in."""
        home = module_of(self.view, self.view.recording.nodes[node])
        return () if home is None else self._path_in(home)

    def _path_in(self, module: int) -> Path:
        """Return the boxes around a module's own content, or around the vertex that contains it."""
        folded = self._folded(module)
        return self.boxes.paths[module] if folded is None else self.boxes.around[folded]

    def _box(self, key: Key) -> int | None:
        """Return the box that a vertex is drawn in."""
        kind, index = key
        home = None
        match kind:
            case "node":
                home = module_of(self.view, self.view.recording.nodes[index])
            case "parameter":
                home = self.view.recording.parameters[index].module
            case "module":
                home = index
            case "cut":
                home = cut_module(self.view, cuts_of(self.view)[index])
        path = self._path_in(home) if home in self.inside and home is not None else ()
        return path[-1][0] if path else None

    def _add_cuts(self, links: PartLinks, boxes_of: dict[Key, int | None]) -> set[Key]:
        """Add the cuts to the vertices and links, and return the part behind each cut."""
        every: set[Key] = set()
        for position, cut in enumerate(cuts_of(self.view)):
            behind = [
                self._parameter_key(parameter)
                for parameter in cut.parameters
                if self.view.recording.parameters[parameter].module in self.inside
            ]
            if behind:
                boxes_of["cut", position] = self._box(("cut", position))
                links.add_cut(position, whole_boxes(behind, boxes_of, self.boxes.boxes), cut)
                every.update(behind)
        return every

    def _turn(self, key: Key, node: int) -> int | None:
        return self.turns[node].number if key[0] == "node" and node in self.turns else None

    def _vertex(self, key: Key, held: Sequence[int]) -> Vertex:
        kind, index = key
        match kind:
            case "module":
                modules = [row.index for row in self.boxes.copies[index]]
                name, copies = self.boxes.names[index]
                return self.maker.module(modules, name, copies)
            case "parameter":
                return self.maker.parameter(self.same[index])
            case "node":
                turns = {self._turn(key, node) for node in held}
                made = self.maker.operation(self.view.recording.nodes[index])
                return replace(made, copies=max(len(turns), 1))
            case "cut":
                return self.maker.cut(cuts_of(self.view)[index])
        return Vertex(index=0, kind="outside", label=_OUTSIDE[kind])
