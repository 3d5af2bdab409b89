"""How large vertices and boxes are drawn, and what is written on them."""

from dataclasses import dataclass

from gradscope.report.graph.labels import box_title, fate, norms_text, shortened, vertex_words
from gradscope.report.graph.text_width import text_width
from gradscope.report.graph.vertices import Box, Vertex

FONT = 12.0
SMALL_FONT = 10.5
PADDING = 9.0
LINE = 15.0

BOX_TITLE = 24.0
"""Height of a box's title."""
BOX_SIDE = 12.0
BOX_FOOT = 8.0
TITLE_GAP = 10.0
LONGEST_TITLE = 44
"""Characters of a box's title that are drawn."""

_FIGURE = text_width("0.00e-00", SMALL_FONT)
"""Room for a norm, whatever it is: so modules that are alike are drawn alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """What is written on a vertex."""

    name: str
    detail: str
    """Softer, behind the name of a parameter, below that of others; may be empty."""
    figure: str
    """The gradient of a parameter, or what became of it."""


def writing(vertex: Vertex) -> Writing:
    """Return what is written on a vertex."""
    if vertex.kind == "parameter":
        known = norms_text(vertex.norms) if vertex.norms is not None else fate(vertex)
        name = shortened(vertex.name or vertex.label, 28)
        dims = vertex.detail[vertex.detail.find("[") :]
        return Writing(name=name, detail=shortened(dims, 20), figure=known)
    name, detail = vertex_words(vertex, is_short=True)
    return Writing(name=shortened(name), detail=shortened(detail), figure="")


def vertex_size(vertex: Vertex) -> tuple[float, float]:
    """Return width and height."""
    words = writing(vertex)
    name = text_width(words.name, FONT)
    detail = text_width(words.detail, SMALL_FONT)
    if vertex.kind == "parameter":
        figure = max(text_width(words.figure, SMALL_FONT), _FIGURE)
        inner = sum(width + 7.0 for width in (name, detail, figure) if width) - 7.0
        return (inner + 2 * PADDING, LINE + 3.0)
    if vertex.kind == "module":
        detail = max(detail, text_width("gradient ", SMALL_FONT) + _FIGURE)
    lines = 1 + bool(words.detail)
    height = lines * LINE + (9.0 if vertex.kind != "outside" else 4.0)
    return (max(name, detail) + 2 * PADDING + 4.0, height)


def box_writing(box: Box) -> Writing:
    """Return what is written on a box."""
    norms = norms_text(box.norms) if box.copies > 1 and box.norms is not None else ""
    name = shortened(box_title(box), LONGEST_TITLE)
    return Writing(name=name, detail=f"gradient {norms}" if norms else "", figure="")


def title_width(box: Box) -> float:
    """Return the least width of a box, that its title has room."""
    words = box_writing(box)
    name, detail = text_width(words.name, FONT), text_width(words.detail, SMALL_FONT)
    return name + (detail + TITLE_GAP if detail else 0.0) + 2 * BOX_SIDE
