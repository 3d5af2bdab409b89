"""The vertices, boxes and links of a drawing before its layout, and how findings mark them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal, Self

from gradscope.analysis.folding import Span, span
from gradscope.analysis.report import Report
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.finding import SEVERITIES, Severity
from gradscope.recording.records import Reach

VertexKind = Literal["operation", "view", "parameter", "leaf", "module", "outside", "cut", "rest"]
"""`outside`: anything beyond the chosen module. `module`: a module whose content is folded. `cut`:
a line that cuts off a gradient. `rest`: parts without space in the drawing.
"""

LinkKind = Literal["gradient", "next", "cut"]
"""`gradient`: tensors of the forward, whose gradients backward passes along. `next`: likewise from
one copy of a repeated module, or one turn of a loop, to the next. `cut`: an edge of the forward
without a gradient.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vertex:
    """An operation, a parameter, a cut, or a module with all that is in it."""

    index: int
    kind: VertexKind
    label: str
    """Operation by autograd's name, or a name that may contain any character."""
    name: str = ""
    """Name inside the box in which it is drawn; empty if that is the label."""
    box: int | None = None
    """Box that the vertex is drawn in."""
    nodes: tuple[int, ...] = ()
    """Nodes of the recording that it represents; empty if backward does not reach it."""
    modules: tuple[int, ...] = ()
    """Modules that a module vertex represents."""
    parameters: tuple[int, ...] = ()
    """Parameters that a parameter vertex represents."""
    copies: int = 1
    class_name: str = ""
    """Class name of a module."""
    detail: str = ""
    """Shape of a parameter or of an operation's result, or the line of a cut."""
    position: str = ""
    """Line that made it, as `file:line`; empty if unknown."""
    norms: Span | None = None
    """Gradient norms of a parameter, or of all parameters in a module; the range over copies."""
    reach: Reach | Literal["unknown"] | None = None
    """Why a parameter, or a module with parameters, got no gradient."""
    is_behind_cut: bool = False
    severity: Severity | None = None
    """Severity of the worst finding about it."""

    @property
    def grad_norm(self) -> float | None:
        """The norm of the gradient; the largest of several copies."""
        return None if self.norms is None else self.norms.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Tensors from one vertex to another, in the direction of the forward."""

    source: int
    target: int
    norms: Span | None
    """Total norm of the gradients with respect to these tensors, over all their uses; the range
    over copies.
    """
    tensors: int
    kind: LinkKind = "gradient"
    box: int | None = None
    """Box that represents the copies of a `next` link, None in a loop; or the box that a cut
    separates as a whole.
    """

    @property
    def grad_norm(self) -> float | None:
        """The norm of the gradient; the largest of several copies."""
        return None if self.norms is None else self.norms.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A module that is drawn open, or several that are alike."""

    index: int
    parent: int | None
    """Box around it."""
    modules: tuple[int, ...]
    """Modules that the box represents; empty for a repeated pattern of siblings."""
    name: str
    """Name relative to the box around it: `h.0`; for copies `h.0 … h.11`."""
    class_name: str
    copies: int
    norms: Span | None
    """Total norm of the parameters' gradients."""
    severity: Severity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPart:
    """The part of a graph that is drawn."""

    vertices: tuple[Vertex, ...]
    links: tuple[Link, ...]
    boxes: tuple[Box, ...] = ()
    """Boxes, outermost first."""
    folded_nodes: int = 0
    folded_modules: int = 0

    @property
    def folded(self) -> str | None:
        """Description of the folded parts; None if nothing is folded."""
        if not self.folded_nodes:
            return None
        nodes = counted(self.folded_nodes, "node")
        return f"… {nodes} folded into {counted(self.folded_modules, 'module')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Severities:
    """The worst finding about each module and about each parameter."""

    modules: Mapping[int, Severity]
    """Worst finding about a module or its content."""
    named: Mapping[int, Severity]
    """Worst finding about a module itself."""
    parameters: Mapping[int, Severity]

    @classmethod
    def of(cls, report: Report) -> Self:
        """Return the worst findings of a report."""
        paths = {path: row.index for row in report.modules for path in (row.path, *row.aliases)}
        names = {name: row.index for row in report.parameters for name in (row.name, *row.aliases)}
        modules: dict[int, Severity] = {}
        named: dict[int, Severity] = {}
        parameters: dict[int, Severity] = {}
        # The order of findings is: the worst first.
        for finding in report.findings:
            for name in finding.parameters:
                if name in names:
                    parameters.setdefault(names[name], finding.severity)
            for path in finding.modules:
                if path in paths:
                    named.setdefault(paths[path], finding.severity)
            owners = [name.rpartition(".")[0] for name in finding.parameters]
            for path in (*finding.modules, *owners):
                module = paths.get(path)
                while module is not None:
                    modules.setdefault(module, finding.severity)
                    module = report.modules[module].parent
        return cls(modules=modules, named=named, parameters=parameters)

    def of_boxes(self, modules: Iterable[int]) -> Severity | None:
        """Return the worst finding about some modules, without their drawn content."""
        return _worst(self.named.get(module) for module in modules)

    def of_modules(self, modules: Iterable[int]) -> Severity | None:
        """Return the worst finding about some modules and their content."""
        return _worst(self.modules.get(module) for module in modules)

    def of_parameters(self, parameters: Iterable[int]) -> Severity | None:
        """Return the worst about some parameters."""
        return _worst(self.parameters.get(parameter) for parameter in parameters)


def _worst(found: Iterable[Severity | None]) -> Severity | None:
    known = [severity for severity in found if severity is not None]
    return min(known, key=SEVERITIES.index, default=None)


def shortened_part(part: GraphPart, most: int) -> GraphPart:
    """Return the part with at most this many vertices; further ones in the middle are merged.

    Only for parts without boxes.
    """
    if len(part.vertices) <= most:
        return part
    ports = [vertex for vertex in part.vertices if vertex.kind == "outside"]
    inner = [vertex for vertex in part.vertices if vertex.kind != "outside"]
    # At least one vertex remains before the rest, and one behind it.
    kept = max(most - 1 - len(ports), 2)
    head, tail = kept - kept // 2, kept // 2
    middle = inner[head : len(inner) - tail]
    rest = _rest(middle)
    vertices = [*inner[:head], rest, *inner[len(inner) - tail :], *ports]
    positions = {vertex.index: position for position, vertex in enumerate(vertices)}
    positions |= {vertex.index: head for vertex in middle}
    return GraphPart(
        vertices=tuple(replace(vertex, index=position) for position, vertex in enumerate(vertices)),
        links=_moved(part, positions),
        folded_nodes=len(rest.nodes),
        folded_modules=sum(vertex.kind == "module" for vertex in middle),
    )


def _rest(middle: list[Vertex]) -> Vertex:
    return Vertex(
        index=middle[0].index,
        kind="rest",
        label=f"… {len(middle):,} more",
        detail=counted(sum(len(vertex.nodes) for vertex in middle), "node"),
        nodes=tuple(node for vertex in middle for node in vertex.nodes),
    )


def _moved(part: GraphPart, positions: dict[int, int]) -> tuple[Link, ...]:
    """Return the links between the remaining vertices; merged links have the range of norms."""
    links: dict[tuple[int, int, str], list[Link]] = {}
    for link in part.links:
        source, target = positions[link.source], positions[link.target]
        if source != target:
            links.setdefault((source, target, link.kind), []).append(link)
    return tuple(
        replace(
            found[0],
            source=source,
            target=target,
            norms=_range(found),
            tensors=sum(link.tensors for link in found),
        )
        for (source, target, _), found in sorted(links.items())
    )


def _range(links: list[Link]) -> Span | None:
    return span(end for link in links if link.norms for end in (link.norms.low, link.norms.high))
