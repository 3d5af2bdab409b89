"""What the colours and lines of a drawing mean: only those that are in it."""

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, SubElement

from gradscope.phrasing import printable
from gradscope.recording.finding import SEVERITIES
from gradscope.report.figures import figure
from gradscope.report.graph.drawing import Drawing
from gradscope.report.graph.labels import link_state, vertex_state
from gradscope.report.graph.scale import LEVELS, NormScale
from gradscope.report.graph.svg_shapes import add_text, number
from gradscope.report.graph.text_width import text_width
from gradscope.report.page import UNICODE

_FONT = 10.5
_ROW = 16.0
_MARGIN = 14.0
_SWATCH = 22.0
_EXPLAINED = "The forward runs from top to bottom; links carry the norms of the gradients."
_STATES = {
    "zero": ("s-zero dotted", "zero"),
    "none": ("s-none dashed", "no gradient"),
    "frozen": ("s-frozen", "frozen"),
    "unknown": ("s-frozen dashed", "not measured"),
    "non-finite": ("s-broken", "NaN or infinite"),
    "cut": ("s-cut dashed", "cut off"),
}

_FOUND = {"error": "f-broken", "warning": "f-warning", "note": "f-note"}
_SPACE = " "

Row = tuple[tuple[str, str], ...]
"""Looks of lines, and words; of words alone the look is empty."""


def legend_size(
    drawing: Drawing, scale: NormScale | None, notes: Sequence[str]
) -> tuple[float, float]:
    """Return the width and the height that the legend takes."""
    rows = list(_rows(drawing, scale, notes))
    width = max(sum(_width(*entry) for entry in row) for row in rows)
    return (width + 2 * _MARGIN, len(rows) * _ROW + _MARGIN)


def add_legend(
    root: Element, drawing: Drawing, scale: NormScale | None, notes: Sequence[str]
) -> None:
    """Add the legend below a drawing."""
    y = drawing.height + _ROW / 2
    for row in _rows(drawing, scale, notes):
        x = _MARGIN
        for look, words in row:
            if look in _FOUND.values():
                spot = {"cx": number(x + _SWATCH - 9), "cy": number(y), "r": "5", "class": look}
                SubElement(root, "circle", spot)
            elif look.strip():
                path = f"M{number(x)} {number(y)}h{number(_SWATCH - 4)}"
                width = "6" if look.startswith("s-g") and look != "s-gradient" else "2"
                SubElement(root, "path", {"d": path, "class": look, "stroke-width": width})
            if words:
                aside = _SWATCH + 2 if look else 0.0
                add_text(root, words, (x + aside, y + 4), _FONT, "f-soft")
            x += _width(look, words)
        y += _ROW


def _width(look: str, words: str) -> float:
    swatch = _SWATCH - 4 if look else 0.0
    return swatch + (text_width(words, _FONT) + 14 if words else 0.0)


def _rows(drawing: Drawing, scale: NormScale | None, notes: Sequence[str]) -> Iterator[Row]:
    if scale is not None:
        levels = tuple((f"s-g{level}", "") for level in range(LEVELS))
        low, high = figure(scale.low, UNICODE), figure(scale.high, UNICODE)
        yield (("", f"gradient norm {low}"), *levels, (_SPACE, ""), ("", high))
    parameters = [one.vertex for one in drawing.vertices if one.vertex.reach is not None]
    found = {vertex_state(vertex) for vertex in parameters if not vertex.is_behind_cut}
    found |= {link_state(one.link) for one in drawing.links if one.link.kind != "cut"}
    is_cut = any(one.link.kind == "cut" for one in drawing.links)
    states = [name for name in _STATES if name in found or (is_cut and name == "cut")]
    severities = {one.vertex.severity for one in drawing.vertices}
    severities |= {one.box.severity for one in drawing.boxes}
    told = tuple((_FOUND[name], f"found: {name}") for name in SEVERITIES if name in severities)
    if states or told:
        yield (*(_STATES[name] for name in states), *told)
    yield (("", _EXPLAINED),)
    for note in notes:
        yield (("", printable(note)),)
