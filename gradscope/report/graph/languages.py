"""A graph in JSON, in DOT of Graphviz, and as a Mermaid flowchart."""

import re
from collections.abc import Iterator
from typing import Annotated

from gradscope.analysis.report import Report
from gradscope.analysis.rows import GraphSummary, ModuleRow
from gradscope.analysis.view import shown_path
from gradscope.phrasing import printable
from gradscope.recording.finding import Severity
from gradscope.recording.records import NodeRecord, Reach, Site
from gradscope.report.graph.labels import State, box_title, link_label, vertex_label, vertex_state
from gradscope.report.graph.tensor_links import SCISSORS
from gradscope.report.graph.vertices import Box, GraphPart, Link, Vertex, VertexKind
from gradscope.report.json.report import DepthParameters, Widest
from gradscope.report.json.shape import (
    INLINE,
    SCHEMA_VERSION,
    Count,
    Given,
    Named,
    Of,
    Shape,
    indented,
)

_Context = tuple[Report, GraphPart]

_SHAPES: dict[VertexKind, str] = {
    "operation": "box",
    "view": "plaintext",
    "parameter": "ellipse",
    "leaf": "ellipse",
    "module": "box3d",
    "outside": "plaintext",
    "cut": "octagon",
    "rest": "plaintext",
}

_COLOURS: dict[State | None, str] = {
    "zero": "#8e5bb5",
    "none": "#b04a00",
    "frozen": "#7d8794",
    "non-finite": "#c3271f",
}

_CUT = "#c3271f"

_FOUND: dict[Severity, str] = {"error": "#c3271f", "warning": "#9a5b00", "note": "#0b6a86"}
"""Colours of modules with findings."""


# References of Mermaid begin with `#` in place of `&`.
_NAMED = {'"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;"}
_ACTIVE = re.compile(r"[^\w .,:()/=+'\-\[\]…—]")
_BRACKETS = {
    "parameter": ("([", "])"),
    "leaf": ("([", "])"),
    "module": ("[[", "]]"),
    "cut": ("{{", "}}"),
}
_STYLES = {
    "cut": "stroke:#c3271f,stroke-dasharray:4 3",
    "zero": "stroke:#8e5bb5",
    "none": "stroke:#b04a00,stroke-dasharray:4 3",
    "frozen": "stroke:#7d8794",
    "broken": "stroke:#c3271f,stroke-width:3px",
}


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


def render_dot(part: GraphPart) -> str:
    """Return a digraph with a cluster a module; without a last line break."""
    lines = [
        "// Edges point in the forward direction; their labels are the norms of the",
        "// gradients that backward passes along them.",
        *([f"// {part.folded}"] if part.folded else []),
        "digraph gradscope {",
        "  rankdir=TB;",
        # Without it, `ltail` has no effect.
        "  compound=true;",
        '  node [fontname="sans-serif", fontsize=10];',
        '  edge [fontname="sans-serif", fontsize=9];',
        *_content(part, None, "  "),
        *(_link(link) for link in part.links),
        "}",
    ]
    return "\n".join(lines)


def _content(part: GraphPart, box: int | None, indent: str) -> Iterator[str]:
    for vertex in part.vertices:
        if vertex.box == box:
            attributes = ", ".join(_attributes(vertex))
            yield f"{indent}n{vertex.index} [{attributes}];"
    for child in part.boxes:
        if child.parent == box:
            yield from _cluster(part, child, indent)


def _cluster(part: GraphPart, box: Box, indent: str) -> Iterator[str]:
    yield f"{indent}subgraph cluster_{box.index} {{"
    yield f"{indent}  label={_quoted(box_title(box))};"
    if box.severity is not None:
        yield f"{indent}  pencolor={_quoted(_FOUND[box.severity])};"
    if box.copies > 1:
        yield f"{indent}  peripheries=2;"
    yield from _content(part, box.index, f"{indent}  ")
    yield f"{indent}}}"


def _attributes(vertex: Vertex) -> Iterator[str]:
    yield f"label={_quoted(vertex_label(vertex))}"
    yield f"shape={_SHAPES[vertex.kind]}"
    colour = _COLOURS.get(vertex_state(vertex)) if vertex.reach is not None else None
    if vertex.is_behind_cut or vertex.kind == "cut":
        colour = _CUT
    if colour is not None:
        yield f"color={_quoted(colour)}"
    if not vertex.nodes and vertex.kind in ("parameter", "module"):
        yield "style=dashed"


def _link(link: Link) -> str:
    attributes = [f"label={_quoted(link_label(link))}"]
    if link.kind == "next":
        # A link to the next copy leads back to the same box, and would reverse the layout.
        attributes += ["style=dashed", "constraint=false"]
    elif link.kind == "cut":
        attributes += ["style=dashed", f"color={_quoted(_CUT)}", f"fontcolor={_quoted(_CUT)}"]
        if link.box is not None:
            attributes.append(f"ltail=cluster_{link.box}")
    return f"  n{link.source} -> n{link.target} [{', '.join(attributes)}];"


def _quoted(name: str) -> str:
    """Return a string of DOT; Graphviz reads character references in labels too."""
    # Graphviz also reads `\n` and `\N` in labels as commands.
    text = printable(name).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def render_mermaid(part: GraphPart) -> str:
    """Return a flowchart with a subgraph a module; without a last line break."""
    classes: dict[str, list[str]] = {}
    for vertex in part.vertices:
        name = _class(vertex)
        if name is not None:
            classes.setdefault(name, []).append(f"n{vertex.index}")
    # Mermaid styles links by their position alone.
    cuts = [str(position) for position, link in enumerate(part.links) if link.kind == "cut"]
    lines = [
        "flowchart TB",
        "  %% Arrows point in the forward direction, their labels are the norms of the",
        "  %% gradients that backward passes along them.",
        *([f"  %% {part.folded}"] if part.folded else []),
        *_mermaid_content(part, None, "  "),
        *(_mermaid_link(link) for link in part.links),
        *(f"  classDef {name} {_STYLES[name]}" for name in classes),
        *(f"  class {','.join(ids)} {name}" for name, ids in classes.items()),
        *([f"  linkStyle {','.join(cuts)} stroke:#c3271f"] if cuts else []),
    ]
    return "\n".join(lines)


def _class(vertex: Vertex) -> str | None:
    if vertex.is_behind_cut or vertex.kind == "cut":
        return "cut"
    state = vertex_state(vertex) if vertex.reach is not None else None
    return "broken" if state == "non-finite" else state if state in _STYLES else None


def _mermaid_content(part: GraphPart, box: int | None, indent: str) -> Iterator[str]:
    for vertex in part.vertices:
        if vertex.box == box:
            before, after = _BRACKETS.get(vertex.kind, ("[", "]"))
            yield f"{indent}n{vertex.index}{before}{_mermaid_text(vertex_label(vertex))}{after}"
    for child in part.boxes:
        if child.parent == box:
            yield f"{indent}subgraph m{child.index}[{_mermaid_text(box_title(child))}]"
            yield from _mermaid_content(part, child.index, f"{indent}  ")
            yield f"{indent}end"


def _mermaid_link(link: Link) -> str:
    arrow = "-->" if link.kind == "gradient" else "-.->"
    is_whole = link.kind == "cut" and link.box is not None
    source = f"m{link.box}" if is_whole else f"n{link.source}"
    return f"  {source} {arrow}|{_mermaid_text(link_label(link))}| n{link.target}"


def _mermaid_text(name: str) -> str:
    # In one pass: otherwise the signs of references would be replaced, too.
    text = _ACTIVE.sub(lambda sign: _NAMED.get(sign[0], f"#{ord(sign[0])};"), printable(name))
    return f'"{text}"'
