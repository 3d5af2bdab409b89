"""A graph as a Mermaid flowchart."""

import re
from collections.abc import Iterator

from gradscope.report.graph.dot import link_label, vertex_label
from gradscope.report.graph.part import GraphPart, Link, Vertex
from gradscope.report.names import printable
from gradscope.report.rows import ModuleRow

_NAMED = {'"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;"}
_ACTIVE = re.compile(r"[^\w .,:()/=+'\-\[\]…—]")


def render_mermaid(part: GraphPart) -> str:
    """Return a flowchart with a subgraph a module; without a last line break."""
    lines = [
        "flowchart TB",
        "  %% Arrows run in the direction of the forward, their labels are the norms of the",
        "  %% gradients that backward brings back along them.",
        *([f"  %% {part.folded}"] if part.folded else []),
        *_vertices(part, None, "  "),
        *(line for row in _outermost(part) for line in _subgraph(part, row, "  ")),
        *(_link(link) for link in part.links),
    ]
    return "\n".join(lines)


def _outermost(part: GraphPart) -> Iterator[ModuleRow]:
    drawn = {row.index for row in part.modules}
    return (row for row in part.modules if row.parent not in drawn)


def _subgraph(part: GraphPart, row: ModuleRow, indent: str) -> Iterator[str]:
    yield f"{indent}subgraph m{row.index}[{_quoted(f'{row.path} {row.class_name}'.strip())}]"
    yield from _vertices(part, row.index, f"{indent}  ")
    for child in part.modules:
        if child.parent == row.index:
            yield from _subgraph(part, child, f"{indent}  ")
    yield f"{indent}end"


def _vertices(part: GraphPart, module: int | None, indent: str) -> Iterator[str]:
    drawn = {row.index for row in part.modules}
    for vertex in part.vertices:
        home = vertex.module if vertex.module in drawn else None
        if home == module:
            yield f"{indent}{_vertex(vertex)}"


def _vertex(vertex: Vertex) -> str:
    label = _quoted(vertex_label(vertex))
    if vertex.kind in ("parameter", "leaf"):
        return f"n{vertex.index}([{label}])"
    return f"n{vertex.index}[[{label}]]" if vertex.kind == "module" else f"n{vertex.index}[{label}]"


def _link(link: Link) -> str:
    return f"  n{link.source} -->|{_quoted(link_label(link))}| n{link.target}"


def _quoted(name: str) -> str:
    text = _ACTIVE.sub(lambda sign: _NAMED.get(sign[0], f"#{ord(sign[0])};"), printable(name))
    return f'"{text}"'
