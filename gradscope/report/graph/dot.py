"""A graph in Graphviz's DOT language."""

from collections.abc import Iterator

from gradscope.phrasing import printable
from gradscope.recording.finding import Severity
from gradscope.report.graph.labels import State, box_title, link_label, vertex_label, vertex_state
from gradscope.report.graph.vertices import Box, GraphPart, Link, Vertex, VertexKind

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
