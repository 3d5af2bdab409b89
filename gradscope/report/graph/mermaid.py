"""A graph as a Mermaid flowchart."""

import re
from collections.abc import Iterator

from gradscope.phrasing import printable
from gradscope.report.graph.labels import box_title, link_label, vertex_label, vertex_state
from gradscope.report.graph.vertices import GraphPart, Link, Vertex

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
        *_content(part, None, "  "),
        *(_link(link) for link in part.links),
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


def _content(part: GraphPart, box: int | None, indent: str) -> Iterator[str]:
    for vertex in part.vertices:
        if vertex.box == box:
            before, after = _BRACKETS.get(vertex.kind, ("[", "]"))
            yield f"{indent}n{vertex.index}{before}{_quoted(vertex_label(vertex))}{after}"
    for child in part.boxes:
        if child.parent == box:
            yield f"{indent}subgraph m{child.index}[{_quoted(box_title(child))}]"
            yield from _content(part, child.index, f"{indent}  ")
            yield f"{indent}end"


def _link(link: Link) -> str:
    arrow = "-->" if link.kind == "gradient" else "-.->"
    is_whole = link.kind == "cut" and link.box is not None
    source = f"m{link.box}" if is_whole else f"n{link.source}"
    return f"  {source} {arrow}|{_quoted(link_label(link))}| n{link.target}"


def _quoted(name: str) -> str:
    # In one pass: otherwise the signs of references would be replaced, too.
    text = _ACTIVE.sub(lambda sign: _NAMED.get(sign[0], f"#{ord(sign[0])};"), printable(name))
    return f'"{text}"'
