"""A graph as JSON."""

from collections.abc import Iterator
from typing import Annotated

from gradscope.analysis.report import Report
from gradscope.analysis.rows import GraphSummary, ModuleRow
from gradscope.analysis.view import shown_path
from gradscope.recording.records import NodeRecord, Reach, Site
from gradscope.report.graph.tensor_links import SCISSORS
from gradscope.report.graph.vertices import GraphPart, Link, Vertex, VertexKind
from gradscope.report.json.report import DepthParameters, Widest
from gradscope.report.json.shape import INLINE, SCHEMA_VERSION, Count, Given, Named, Of, Shape
from gradscope.report.json.text import indented

_Context = tuple[Report, GraphPart]


class _Structure(Shape):
    """The structure of the whole graph."""

    nodes: Count
    edges: Count
    depth: Count
    leaves: Count
    views: Count
    widest: Widest | None
    operations: dict[str, Count]
    parameters_by_depth: tuple[DepthParameters, ...]


def _graph(_: GraphPart, context: _Context) -> GraphSummary:
    return context[0].graph


class _Summary(Shape):
    """The structure of the whole graph, and the number of folded parts."""

    structure: Annotated[_Structure, INLINE, Of(_graph)]
    folded_nodes: Count
    folded_modules: Count


def _single(vertex: Vertex, context: _Context) -> NodeRecord | None:
    """Return the node that a vertex represents; None if there are several or none."""
    nodes = context[0].recording.nodes
    return nodes[vertex.nodes[0]] if len(vertex.nodes) == 1 else None


def _site(vertex: Vertex, context: _Context) -> Site | None:
    single = _single(vertex, context)
    return (
        None if single is None or single.site is None else context[0].recording.sites[single.site]
    )


def _file(vertex: Vertex, context: _Context) -> str | None:
    site = _site(vertex, context)
    return None if site is None else shown_path(site.file, context[0].target.root)


def _line(vertex: Vertex, context: _Context) -> int | None:
    site = _site(vertex, context)
    return None if site is None else site.line


def _depth(vertex: Vertex, context: _Context) -> int | None:
    single = _single(vertex, context)
    return None if single is None else single.depth


def _module(vertex: Vertex, context: _Context) -> int | None:
    # Without folded repeats, each box is of one module.
    return None if vertex.box is None else context[1].boxes[vertex.box].modules[0]


class _Node(Shape):
    """A vertex that is no cut."""

    index: Annotated[Count, Named("id")]
    kind: VertexKind
    label: Annotated[str, Of(lambda vertex, _: f"{vertex.label} {vertex.class_name}".strip())]
    module: Annotated[Count | None, Of(_module)]
    nodes: Annotated[Count, Of(lambda vertex, _: len(vertex.nodes))]
    param_grad_norm: Annotated[float | None, Of("grad_norm")]
    reach: Reach | None
    depth: Annotated[Count | None, Of(_depth)]
    file: Annotated[str | None, Of(_file)]
    line: Annotated[Count | None, Of(_line)]
    is_cut_off: Annotated[bool, Of("is_behind_cut")]


class _Edge(Shape):
    """Tensors from one vertex to another."""

    source: Count
    target: Count
    grad_norm: float | None
    tensors: Count


def _sources(vertex: Vertex, context: _Context) -> Iterator[int]:
    return (link.source for link in context[1].links if link.target == vertex.index)


def _targets(vertex: Vertex, context: _Context) -> Iterator[int]:
    return (link.target for link in context[1].links if link.source == vertex.index)


class _Cut(Shape):
    """A line that cuts a gradient off, with the nodes before it and those after it."""

    index: Annotated[Count, Named("id")]
    label: Annotated[str, Of(lambda vertex, _: vertex.label.removeprefix(SCISSORS).strip())]
    place: Annotated[Given, Of("position")]
    sources: Annotated[tuple[Count, ...], Of(_sources)]
    targets: Annotated[tuple[Count, ...], Of(_targets)]


class _Module(Shape):
    """A module that is drawn open."""

    index: Annotated[Count, Named("id")]
    path: str
    class_name: Annotated[str, Named("class")]
    parent: Count | None


def _nodes(part: GraphPart, _: _Context) -> Iterator[Vertex]:
    return (vertex for vertex in part.vertices if vertex.kind != "cut")


def _cuts(part: GraphPart, _: _Context) -> Iterator[Vertex]:
    return (vertex for vertex in part.vertices if vertex.kind == "cut")


def _edges(part: GraphPart, _: _Context) -> Iterator[Link]:
    return (link for link in part.links if link.kind != "cut")


def _modules(part: GraphPart, context: _Context) -> Iterator[ModuleRow]:
    return (context[0].modules[box.modules[0]] for box in part.boxes)


class _Graph(Shape):
    """Summary, nodes, edges and modules; edges run as the forward does."""

    schema_version: Annotated[str, Of(lambda *_: SCHEMA_VERSION)]
    summary: Annotated[_Summary, Of()]
    nodes: Annotated[tuple[_Node, ...], Of(_nodes)]
    edges: Annotated[tuple[_Edge, ...], Of(_edges)]
    cuts: Annotated[tuple[_Cut, ...], Of(_cuts)]
    modules: Annotated[tuple[_Module, ...], Of(_modules)]


def render_graph_json(report: Report, part: GraphPart) -> str:
    """Return an object of summary, nodes, edges and modules; edges run as the forward does."""
    return indented(_Graph.write(part, (report, part)), ensure_ascii=False)
