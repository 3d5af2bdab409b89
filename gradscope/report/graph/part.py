"""The part of a graph that is drawn: modules folded until it fits, views left out."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from gradscope.counting import counted
from gradscope.recording.records import NodeRecord, Reach, TensorRef
from gradscope.recording.step_view import StepView, created, first_step
from gradscope.report.model import Report
from gradscope.report.norms import total_norm
from gradscope.report.rows import ModuleRow
from gradscope.report.selection import modules_below
from gradscope.report.view import ViewOptions

VertexKind = Literal["operation", "view", "parameter", "leaf", "module", "outside"]
"""`outside` is what lies beyond the chosen module, `module` one whose inside is folded."""

_Key = tuple[Literal["node", "module", "parameter", "before", "after", "rest"], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOptions:
    """What of the graph is wanted."""

    module: str | None = None
    depth: int | None = None
    """Modules so deep below the model, or below `module`, are one vertex each."""
    max_nodes: int | None = None
    has_views: bool = False
    """Whether nodes that hand their neighbour's gradient on are vertices too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vertex:
    """An operation, a parameter, or a module with all that is in it."""

    index: int
    kind: VertexKind
    label: str
    """The operation as autograd names it, or a name that may hold any character."""
    module: int | None
    """The module that it is drawn in."""
    nodes: tuple[int, ...]
    """The recording's nodes that it stands for; none where backward does not lead to it."""
    grad_norm: float | None
    """Over the gradients of a parameter, or of all parameters in a module."""
    reach: Reach | Literal["unknown"] | None = None
    """Of a parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Tensors from one vertex to another, in the direction of the forward."""

    source: int
    target: int
    grad_norm: float | None
    """Total norm of the gradients with respect to them, over all their uses."""
    tensors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPart:
    """What is drawn."""

    vertices: tuple[Vertex, ...]
    links: tuple[Link, ...]
    modules: tuple[ModuleRow, ...]
    """The modules that vertices are drawn in, and the modules around those, outermost first."""
    folded_nodes: int
    folded_modules: int

    @property
    def folded(self) -> str | None:
        """What was folded, in words; None for nothing."""
        if not self.folded_nodes:
            return None
        nodes = counted(self.folded_nodes, "node")
        return f"… {nodes} folded into {counted(self.folded_modules, 'module')}"


def graph_part(report: Report, options: GraphOptions) -> GraphPart:
    """Return the chosen part; the deepest modules are folded first until it fits.

    Raises:
        GradscopeError: The chosen module is not in the report.
    """
    chosen = modules_below(report, ViewOptions(module=options.module))
    return _Part(report, options, chosen).build()


def module_of(view: StepView, node: NodeRecord) -> int | None:
    """Return the module a node belongs to: whose call made it, or that owns the parameter."""
    if node.parameter is not None:
        return view.recording.parameters[node.parameter].module
    return None if node.module_call is None else view.recording.calls[node.module_call].module


@dataclass(slots=True)
class _Part:
    """Builds the part."""

    report: Report
    options: GraphOptions
    chosen: tuple[ModuleRow, ...]
    view: StepView = field(init=False)
    keys: dict[int, _Key] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.view = first_step(self.report.recording)

    def build(self) -> GraphPart:
        """Return it."""
        limit = self._limit()
        members = self._members(limit)
        self.keys = {node: key for key, nodes in members.items() for node in nodes}
        tensors = self._tensors()
        for link in tensors:
            for key in link:
                members.setdefault(key, [])
        for parameter in self._unreached(limit):
            members[("parameter", parameter)] = []
        places = {key: place for place, key in enumerate(members)}
        vertices = tuple(self._vertex(places[key], key, members[key]) for key in members)
        links = [
            Link(
                source=places[source],
                target=places[target],
                grad_norm=total_norm(self._norms(refs)),
                tensors=len(refs),
            )
            for (source, target), refs in tensors.items()
        ]
        folded = [vertex for vertex in vertices if vertex.kind == "module"]
        return GraphPart(
            vertices=vertices,
            links=tuple(sorted(links, key=lambda link: (link.source, link.target))),
            modules=self._clusters(vertices),
            folded_nodes=sum(len(vertex.nodes) for vertex in folded),
            folded_modules=len(folded),
        )

    def _limit(self) -> int | None:
        """Return the depth at which modules are folded; None for nowhere."""
        deepest = max((row.depth for row in self.chosen), default=0) - self._base()
        limit = self.options.depth
        most = self.options.max_nodes
        if most is None or len(self._members(limit)) <= most:
            return limit
        limit = deepest if limit is None else min(limit, deepest)
        while limit > 0 and len(self._members(limit)) > most:
            limit -= 1
        return limit

    def _base(self) -> int:
        return min((row.depth for row in self.chosen), default=0)

    def _members(self, limit: int | None) -> dict[_Key, list[int]]:
        """Return the nodes of each vertex, in the order of the forward."""
        inside = {row.index for row in self.chosen}
        members: dict[_Key, list[int]] = {}
        for node in sorted(self.view.nodes, key=lambda node: (created(node), -node.depth)):
            home = module_of(self.view, node)
            if home in inside or (home is None and not self.options.module):
                key = self._key(node, home, limit)
                if key is not None:
                    members.setdefault(key, []).append(node.index)
        return members

    def _key(self, node: NodeRecord, home: int | None, limit: int | None) -> _Key | None:
        """Return the vertex that a node is in; None where it is passed over."""
        if limit is not None and home is not None:
            row: ModuleRow | None = self.report.modules[home]
            top = self._base() + limit
            while row is not None and row.depth > top:
                row = None if row.parent is None else self.report.modules[row.parent]
            if row is not None and row.depth == top:
                return ("module", row.index)
        if limit == 0:
            return ("rest", 0)
        return None if self._is_passed(node) else ("node", node.index)

    def _is_passed(self, node: NodeRecord) -> bool:
        return node.kind == "view" and not self.options.has_views

    def _tensors(self) -> dict[tuple[_Key, _Key], list[TensorRef]]:
        """Return the tensors between vertices, each once for a pair of them."""
        forward: dict[int, list[TensorRef]] = {}
        for edge in self.view.recording.edges:
            ref = TensorRef(node=edge.target, slot=edge.slot)
            forward.setdefault(edge.source, []).append(ref)
        tensors: dict[tuple[_Key, _Key], dict[TensorRef, None]] = {}
        for node in self.view.nodes:
            if self._is_passed(node) and node.index not in self.keys:
                continue
            for ref in forward.get(node.index, []):
                for end in self._ends(ref, forward):
                    self._join(tensors, end, node.index)
        return {pair: list(refs) for pair, refs in tensors.items()}

    def _ends(self, ref: TensorRef, forward: dict[int, list[TensorRef]]) -> Iterator[TensorRef]:
        """Yield the tensors that the views lead to, which the reference may be in itself."""
        pending = [ref]
        while pending:
            current = pending.pop()
            node = self.view.recording.nodes[current.node]
            if self._is_passed(node) and node.index not in self.keys and current.node in forward:
                pending.extend(forward[current.node])
            else:
                yield current

    def _join(
        self,
        tensors: dict[tuple[_Key, _Key], dict[TensorRef, None]],
        ref: TensorRef,
        consumer: int,
    ) -> None:
        source = self.keys.get(ref.node, ("before", 0))
        target = self.keys.get(consumer, ("after", 0))
        if source != target and not (source[0] == "before" and target[0] == "after"):
            tensors.setdefault((source, target), {})[self.view.measured(ref)] = None

    def _norms(self, refs: Iterable[TensorRef]) -> Iterator[float]:
        for ref in refs:
            stat = self.view.tensor_stats.get(ref)
            parameter = self.view.recording.nodes[ref.node].parameter
            gradient = stat.gradient if stat else None
            if parameter is not None:
                gradient = self.report.parameters[parameter].grad
            if gradient is not None:
                yield gradient.norm

    def _unreached(self, limit: int | None) -> Iterator[int]:
        """Yield the parameters that no node stands for, where their module is drawn open."""
        paths = {row.path: row for row in self.chosen}
        seen = {node.parameter for node in self.view.nodes}
        for parameter in self.report.parameters:
            owner = paths.get(parameter.module)
            if owner is None or parameter.index in seen:
                continue
            if limit is None or owner.depth - self._base() < limit:
                yield parameter.index

    def _vertex(self, place: int, key: _Key, nodes: list[int]) -> Vertex:
        kind, index = key
        recording = self.view.recording
        if kind == "module":
            row = self.report.modules[index]
            label = f"{row.path} {row.class_name}".strip()
            return _vertex(place, "module", label, row.parent, nodes, row.grad_norm)
        if kind == "parameter":
            return self._parameter(place, index, nodes)
        if kind != "node":
            label = {"before": "before", "after": "after"}.get(kind, "outside of the modules")
            return _vertex(place, "outside", label, None, nodes, None)
        node = recording.nodes[index]
        if node.parameter is not None:
            return self._parameter(place, node.parameter, nodes)
        return _vertex(place, node.kind, node.operation, module_of(self.view, node), nodes, None)

    def _parameter(self, place: int, index: int, nodes: list[int]) -> Vertex:
        row, module = self.report.parameters[index], self.view.recording.parameters[index].module
        norm = None if row.grad is None else row.grad.norm
        vertex = _vertex(place, "parameter", row.name, module, nodes, norm)
        return replace(vertex, reach=row.reach)

    def _clusters(self, vertices: tuple[Vertex, ...]) -> tuple[ModuleRow, ...]:
        inside = {row.index for row in self.chosen}
        used: set[int] = set()
        for vertex in vertices:
            module = vertex.module
            while module is not None and module in inside and module not in used:
                used.add(module)
                module = self.report.modules[module].parent
        return tuple(row for row in self.chosen if row.index in used)


def _vertex(
    place: int,
    kind: VertexKind,
    label: str,
    module: int | None,
    nodes: list[int],
    norm: float | None,
) -> Vertex:
    return Vertex(
        index=place, kind=kind, label=label, module=module, nodes=tuple(nodes), grad_norm=norm
    )
