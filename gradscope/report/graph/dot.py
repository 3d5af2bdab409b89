"""A graph in Graphviz's DOT language."""

from collections.abc import Iterator

from gradscope.report.figures import figure
from gradscope.report.graph.part import GraphPart, Link, Vertex, VertexKind
from gradscope.report.names import operation_text, printable
from gradscope.report.page import UNICODE
from gradscope.report.rows import ModuleRow

_SHAPES: dict[VertexKind, str] = {
    "operation": "box",
    "view": "plaintext",
    "parameter": "ellipse",
    "leaf": "ellipse",
    "module": "box3d",
    "outside": "plaintext",
}


def render_dot(part: GraphPart) -> str:
    """Return a digraph with a cluster a module; without a last line break."""
    lines = [
        "// Edges run in the direction of the forward; their labels are the norms of the",
        "// gradients that backward brings back along them.",
        *([f"// {part.folded}"] if part.folded else []),
        "digraph gradscope {",
        "  rankdir=TB;",
        '  node [fontname="sans-serif", fontsize=10];',
        '  edge [fontname="sans-serif", fontsize=9];',
        *_vertices(part, None, "  "),
        *(line for row in _outermost(part) for line in _cluster(part, row, "  ")),
        *(_link(link) for link in part.links),
        "}",
    ]
    return "\n".join(lines)


def _outermost(part: GraphPart) -> Iterator[ModuleRow]:
    drawn = {row.index for row in part.modules}
    return (row for row in part.modules if row.parent not in drawn)


def _cluster(part: GraphPart, row: ModuleRow, indent: str) -> Iterator[str]:
    yield f"{indent}subgraph cluster_{row.index} {{"
    yield f"{indent}  label={_quoted(f'{row.path} {row.class_name}'.strip())};"
    yield from _vertices(part, row.index, f"{indent}  ")
    for child in part.modules:
        if child.parent == row.index:
            yield from _cluster(part, child, f"{indent}  ")
    yield f"{indent}}}"


def _vertices(part: GraphPart, module: int | None, indent: str) -> Iterator[str]:
    drawn = {row.index for row in part.modules}
    for vertex in part.vertices:
        home = vertex.module if vertex.module in drawn else None
        if home == module:
            style = "" if vertex.nodes or vertex.kind == "outside" else ", style=dashed"
            label = _quoted(vertex_label(vertex))
            yield f"{indent}n{vertex.index} [label={label}, shape={_SHAPES[vertex.kind]}{style}];"


def vertex_label(vertex: Vertex) -> str:
    """Return what stands on a vertex: name, norm of a parameter's gradient, nodes folded in it."""
    if vertex.kind == "parameter":
        return f"{vertex.label} ({_fate(vertex)})"
    if vertex.kind == "module":
        return f"{vertex.label} ({len(vertex.nodes):,} nodes)"
    return operation_text(vertex.label)


def _fate(vertex: Vertex) -> str:
    if vertex.grad_norm is not None:
        return f"gradient {figure(vertex.grad_norm, UNICODE)}"
    words = {"frozen": "frozen", "unknown": "not measured"}
    return words.get(vertex.reach or "", "no gradient")


def _link(link: Link) -> str:
    return f"  n{link.source} -> n{link.target} [label={_quoted(link_label(link))}];"


def link_label(link: Link) -> str:
    """Return the norm, and how many tensors it is the total of where there are several."""
    norm = figure(link.grad_norm, UNICODE)
    return norm if link.tensors == 1 else f"{norm} ({link.tensors} tensors)"


def _quoted(name: str) -> str:
    """Return a string of DOT; Graphviz reads character references in labels too."""
    text = printable(name).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
