"""The shapes, colours and legend of a drawing as elements of SVG."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from xml.etree.ElementTree import Element, SubElement

from gradscope.phrasing import printable
from gradscope.recording.finding import SEVERITIES
from gradscope.report.graph.arrangement import Point
from gradscope.report.graph.drawing import LEVELS, Drawing, Frame, NormScale
from gradscope.report.graph.labels import link_state, text_width, vertex_state
from gradscope.report.number_format import figure

_LIGHT = {
    "paper": "#ffffff",
    "panel": "#f6f7f9",
    "line": "#c9d1da",
    "ink": "#1b2129",
    "soft": "#5b6673",
    "module": "#dbe9ff",
    "gradient": "#1f6feb",
    "zero": "#8e5bb5",
    "none": "#b04a00",
    "frozen": "#7d8794",
    "broken": "#c3271f",
    "cut": "#c3271f",
    "cut-soft": "#fdecea",
    "warning": "#9a5b00",
    "note": "#0b6a86",
    **{
        f"g{level}": colour
        for level, colour in enumerate(
            ("#b3c7df", "#92b1d4", "#6f9ac8", "#4c80b6", "#30659d", "#1c4a7c", "#0c2f5a")
        )
    },
}
_DARK = {
    "paper": "#12161c",
    "panel": "#1a2028",
    "line": "#3d4854",
    "ink": "#e6eaf0",
    "soft": "#9aa6b4",
    "module": "#1d3353",
    "gradient": "#6cacff",
    "zero": "#c79be8",
    "none": "#f0a35e",
    "frozen": "#8b96a4",
    "broken": "#ff7b72",
    "cut": "#ff7b72",
    "cut-soft": "#3a1a1a",
    "warning": "#e3b341",
    "note": "#56c2dc",
    **{
        f"g{level}": colour
        for level, colour in enumerate(
            ("#3b4c63", "#466488", "#527dac", "#6598cd", "#86b5e8", "#b0d2f8", "#deedff")
        )
    },
}
_STROKED = ("line", "gradient", "zero", "none", "frozen", "broken", "cut", "ink", "soft")


def style() -> str:
    """Return the style sheet of a drawing.

    Colours stand in classes and not in variables, which other programs than browsers do not know.
    """
    dark = "\n".join(_colours(_DARK))
    return "\n".join(
        [*_RULES, *_colours(_LIGHT), "@media (prefers-color-scheme: dark) {", dark, "}"]
    )


_RULES = (
    'text { font-family: "Helvetica Neue", Helvetica, Arial, "Liberation Sans", sans-serif; }',
    # SVG fills paths unless told otherwise.
    "path { fill: none; }",
    ".dashed { stroke-dasharray: 4 3; }",
    ".dotted { stroke-dasharray: 1 3; }",
    ".strong { font-weight: 600; }",
)


def _colours(colours: dict[str, str]) -> list[str]:
    return [f".f-{name} {{ fill: {colour}; }}" for name, colour in colours.items()] + [
        f".s-{name} {{ stroke: {colour}; }}"
        for name, colour in colours.items()
        if name in _STROKED or name.startswith("g")
    ]


def number(value: float) -> str:
    """Return a number of pixels with one decimal."""
    return f"{value:.1f}".removesuffix(".0")


def add_title(parent: Element, words: str) -> None:
    """Add a tooltip."""
    SubElement(parent, "title").text = words


def add_text(
    parent: Element, words: str, at: Point, size: float, css_class: str, anchor: str = "start"
) -> None:
    """Add a line of text whose base line begins at a point, or has its middle or end there."""
    attributes = {
        "x": number(at[0]),
        "y": number(at[1]),
        "font-size": number(size),
        "class": css_class,
    }
    if anchor != "start":
        attributes["text-anchor"] = anchor
    SubElement(parent, "text", attributes).text = printable(words)


def add_frame(parent: Element, frame: Frame, css_class: str, corner: float) -> None:
    """Add a rectangle with round corners."""
    SubElement(
        parent,
        "rect",
        {
            "x": number(frame.x),
            "y": number(frame.y),
            "width": number(frame.width),
            "height": number(frame.height),
            "rx": number(corner),
            "class": css_class,
        },
    )


def curve(points: Sequence[Point], *, is_beside: bool) -> str:
    """Return a path through points: straight through layers, and a curve aside between them."""
    (x, y), rest = points[0], pairwise(points)
    parts = [f"M{number(x)} {number(y)}"]
    for (x, y), (right, bottom) in rest:
        end = f"{number(right)} {number(bottom)}"
        if x == right or y == bottom:
            parts.append(f"L{end}")
        elif is_beside:
            middle = number((x + right) / 2)
            parts.append(f"C{middle} {number(y)} {middle} {number(bottom)} {end}")
        else:
            middle = number((y + bottom) / 2)
            parts.append(f"C{number(x)} {middle} {number(right)} {middle} {end}")
    return "".join(parts)


def arrowhead(points: Sequence[Point], size: float, *, is_beside: bool) -> str:
    """Return a triangle with its tip at the end of a line."""
    x, y = points[-1]
    across, along = number(size * 0.6), number(size)
    tip = f"M{number(x)} {number(y)}"
    if is_beside:
        return f"{tip}l-{along} -{across}v{number(size * 1.2)}z"
    is_up = len(points) > 1 and points[-2][1] > y
    return f"{tip}l-{across} {'' if is_up else '-'}{along}h{number(size * 1.2)}z"


_FONT = 10.5
_ROW = 16.0
_MARGIN = 14.0
_SWATCH = 22.0
_EXPLAINED = "Forward runs from top to bottom; links show gradient norms."
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
"""Style of each line of a legend, and its text; for text alone the style is empty."""


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
        for css_class, words in row:
            if css_class in _FOUND.values():
                spot = {
                    "cx": number(x + _SWATCH - 9),
                    "cy": number(y),
                    "r": "5",
                    "class": css_class,
                }
                SubElement(root, "circle", spot)
            elif css_class.strip():
                path = f"M{number(x)} {number(y)}h{number(_SWATCH - 4)}"
                width = "6" if css_class.startswith("s-g") and css_class != "s-gradient" else "2"
                SubElement(root, "path", {"d": path, "class": css_class, "stroke-width": width})
            if words:
                aside = _SWATCH + 2 if css_class else 0.0
                add_text(root, words, (x + aside, y + 4), _FONT, "f-soft")
            x += _width(css_class, words)
        y += _ROW


def _width(css_class: str, words: str) -> float:
    swatch = _SWATCH - 4 if css_class else 0.0
    return swatch + (text_width(words, _FONT) + 14 if words else 0.0)


def _rows(drawing: Drawing, scale: NormScale | None, notes: Sequence[str]) -> Iterator[Row]:
    if scale is not None:
        levels = tuple((f"s-g{level}", "") for level in range(LEVELS))
        low, high = figure(scale.low), figure(scale.high)
        yield (("", f"gradient norm {low}"), *levels, (_SPACE, ""), ("", high))
    parameters = [one.vertex for one in drawing.vertices if one.vertex.reach is not None]
    found = {vertex_state(vertex) for vertex in parameters if not vertex.is_behind_cut}
    found |= {link_state(one.link) for one in drawing.links if one.link.kind != "cut"}
    is_cut = any(one.link.kind == "cut" for one in drawing.links)
    states = [name for name in _STATES if name in found or (is_cut and name == "cut")]
    severities = {one.vertex.severity for one in drawing.vertices}
    severities |= {one.box.severity for one in drawing.boxes}
    reported = tuple((_FOUND[name], f"found: {name}") for name in SEVERITIES if name in severities)
    if states or reported:
        yield (*(_STATES[name] for name in states), *reported)
    yield (("", _EXPLAINED),)
    for note in notes:
        yield (("", printable(note)),)
