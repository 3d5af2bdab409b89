"""A drawing as a self-contained SVG file, for light and dark backgrounds."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element, SubElement, tostring

from gradscope.phrasing import printable
from gradscope.report.graph.arrangement import Point
from gradscope.report.graph.drawing import (
    FIGURE_FONT,
    Drawing,
    Frame,
    NormScale,
    PlacedBox,
    PlacedLink,
    PlacedVertex,
)
from gradscope.report.graph.labels import (
    BOX_SIDE,
    FONT,
    PADDING,
    SMALL_FONT,
    TITLE_GAP,
    State,
    box_text,
    box_writing,
    link_state,
    link_title,
    norms_text,
    text_width,
    title_width,
    vertex_state,
    vertex_title,
    writing,
)
from gradscope.report.graph.svg_elements import (
    add_frame,
    add_legend,
    add_text,
    add_title,
    arrowhead,
    curve,
    legend_size,
    number,
    style,
)
from gradscope.report.graph.vertices import Vertex, VertexKind

_PLAIN: dict[VertexKind, str] = {
    "operation": "f-panel s-line",
    "view": "f-paper s-line",
    "leaf": "f-paper s-soft",
    "module": "f-module s-gradient",
    "outside": "f-paper s-line dashed",
    "rest": "f-paper s-line dashed",
    "cut": "f-cut-soft s-cut",
    "parameter": "f-paper s-gradient",
}
_STATES: dict[State, str] = {
    "zero": "zero",
    "none": "none",
    "frozen": "frozen",
    "unknown": "frozen",
    "non-finite": "broken",
}


def render_svg(drawing: Drawing, name: str, notes: Sequence[str] = ()) -> str:
    """Return the drawing as SVG, without a last line break.

    Args:
        drawing: What is drawn.
        name: Of what it is a drawing.
        notes: What else is to be said below it.
    """
    scale = NormScale.of(drawing)
    below = legend_size(drawing, scale, notes)
    width, height = max(drawing.width, below[0]), drawing.height + below[1]
    root = Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {number(width)} {number(height)}",
            "width": number(width),
            "height": number(height),
            "role": "img",
            "aria-label": printable(name),
        },
    )
    SubElement(root, "style").text = style()
    SubElement(root, "rect", {"width": number(width), "height": number(height), "class": "f-paper"})
    shift = f"translate({number((width - drawing.width) / 2)} 0)"
    _Writer(drawing, scale, SubElement(root, "g", {"transform": shift})).write()
    add_legend(root, drawing, scale, notes)
    return tostring(root, encoding="unicode")


@dataclass(slots=True)
class _Writer:
    drawing: Drawing
    scale: NormScale | None
    root: Element
    cut_off: set[int | None] = field(init=False)
    """Boxes that a cut separates as a whole."""

    def __post_init__(self) -> None:
        links = (placed.link for placed in self.drawing.links)
        self.cut_off = {link.box for link in links if link.kind == "cut"}

    def write(self) -> None:
        """Add boxes, then the links over them, then the vertices over those."""
        for box in self.drawing.boxes:
            self._box(box)
        for link in sorted(self.drawing.links, key=self._weight):
            self._link(link)
        # A box's title is drawn above the links that enter it.
        for box in self.drawing.boxes:
            self._title(box)
        for vertex in self.drawing.vertices:
            self._vertex(vertex)

    def _weight(self, placed: PlacedLink) -> int:
        """Return the drawing order of links: a larger gradient is drawn above a smaller one."""
        norms = placed.link.norms
        return 0 if norms is None or self.scale is None else self.scale.level(norms)

    def _box(self, placed: PlacedBox) -> None:
        box, frame = placed.box, placed.frame
        group = SubElement(self.root, "g")
        add_title(group, box_text(box))
        # Two frames behind it show that it stands for several.
        if box.copies > 1:
            for shift in (6.0, 3.0):
                add_frame(group, frame.moved(shift, shift), "f-paper s-line", 7)
        is_cut = box.index in self.cut_off
        add_frame(group, frame, "f-paper s-cut dashed" if is_cut else "f-paper s-line", 7)

    def _title(self, placed: PlacedBox) -> None:
        box, frame, words = placed.box, placed.frame, box_writing(placed.box)
        group = SubElement(self.root, "g")
        add_title(group, box_text(box))
        # Links pass behind the title, which stays readable on a ground of its own.
        ground = Frame(x=frame.x + 6, y=frame.y + 4, width=title_width(box) - 12, height=16.0)
        add_frame(group, ground, "f-paper", 0)
        at = (frame.x + BOX_SIDE, frame.y + 16)
        add_text(group, words.name, at, FONT, "f-ink strong" if box.copies > 1 else "f-soft")
        if words.detail:
            aside = (at[0] + text_width(words.name, FONT) + TITLE_GAP, at[1])
            add_text(group, words.detail, aside, SMALL_FONT, "f-soft")
        if box.severity is not None:
            self._finding(group, (frame.right - 2, frame.y + 2), box.severity)

    def _finding(self, group: Element, at: Point, severity: str) -> None:
        fill = {"error": "f-broken", "warning": "f-warning"}.get(severity, "f-note")
        SubElement(
            group, "circle", {"cx": number(at[0]), "cy": number(at[1]), "r": "5", "class": fill}
        )

    def _vertex(self, placed: PlacedVertex) -> None:
        vertex, frame = placed.vertex, placed.frame
        group = SubElement(self.root, "g")
        add_title(group, vertex_title(vertex))
        corner = frame.height / 2 if vertex.kind in ("parameter", "leaf", "outside") else 4.0
        if vertex.copies > 1 and vertex.kind == "module":
            add_frame(group, frame.moved(4, 4), self._css_class(vertex), corner)
        add_frame(group, frame, self._css_class(vertex), corner)
        if vertex.kind == "parameter":
            self._parameter(group, placed)
        else:
            self._text_lines(group, placed)
        if vertex.severity is not None:
            self._finding(group, (frame.right - 1, frame.y + 1), vertex.severity)

    def _css_class(self, vertex: Vertex) -> str:
        fill = _PLAIN[vertex.kind].split()[0]
        state = vertex_state(vertex) if vertex.reach is not None else None
        if vertex.is_behind_cut:
            return f"{fill} s-cut dashed"
        if state in _STATES:
            dash = " dashed" if state == "none" else ""
            return f"{fill} s-{_STATES[state]}{dash}"
        return _PLAIN[vertex.kind]

    def _parameter(self, group: Element, placed: PlacedVertex) -> None:
        frame, words = placed.frame, writing(placed.vertex)
        base = frame.y + frame.height / 2 + 4
        add_text(group, words.name, (frame.x + PADDING, base), FONT, "f-ink")
        aside = frame.x + PADDING + text_width(words.name, FONT) + 6
        add_text(group, words.detail, (aside, base), SMALL_FONT, "f-soft")
        end = (frame.right - PADDING, base)
        add_text(group, words.figure, end, SMALL_FONT, self._ink(placed.vertex), "end")

    def _text_lines(self, group: Element, placed: PlacedVertex) -> None:
        frame, words = placed.frame, writing(placed.vertex)
        middle, center = frame.x + frame.width / 2, frame.y + frame.height / 2
        is_cut = placed.vertex.kind == "cut"
        ink = "f-cut strong" if is_cut else "f-ink"
        base = center + (-2 if words.detail else 4)
        add_text(group, words.name, (middle, base), FONT, ink, "middle")
        if words.detail:
            soft = "f-cut" if is_cut else self._ink(placed.vertex)
            add_text(group, words.detail, (middle, center + 12), SMALL_FONT, soft, "middle")

    def _ink(self, vertex: Vertex) -> str:
        """Return the colour of a gradient's state."""
        state = vertex_state(vertex) if vertex.reach is not None else None
        if vertex.is_behind_cut:
            return "f-cut"
        return f"f-{_STATES[state]}" if state in _STATES else "f-soft"

    def _link(self, placed: PlacedLink) -> None:
        link = placed.link
        vertices = self.drawing.vertices
        group = SubElement(self.root, "g")
        add_title(
            group, link_title(link, vertices[link.source].vertex, vertices[link.target].vertex)
        )
        stroke, fill, width, dash = self._line(placed)
        for points in placed.ways:
            path = curve(points, is_beside=placed.is_beside)
            attributes = {"d": path, "stroke-width": number(width), "class": f"{stroke}{dash}"}
            SubElement(group, "path", attributes)
        size = 4.5 + width
        head = arrowhead(placed.ways[-1], size, is_beside=placed.is_beside)
        SubElement(group, "path", {"d": head, "class": fill})
        if placed.figure is not None:
            at = (placed.figure.x, placed.figure.y)
            anchor = "end" if placed.figure.is_end else "start"
            add_text(group, norms_text(link.norms), at, FIGURE_FONT, "f-soft", anchor)

    def _line(self, placed: PlacedLink) -> tuple[str, str, float, str]:
        """Return stroke and fill, width, and how a link is dashed."""
        link = placed.link
        if link.kind == "cut":
            return "s-cut", "f-cut", 1.6, " dashed"
        match link_state(link):
            case "non-finite":
                return "s-broken", "f-broken", 3.0, ""
            case "zero":
                return "s-zero", "f-zero", 1.6, " dotted"
            case "gradient" if link.norms is not None and self.scale is not None:
                level = self.scale.level(link.norms)
                return f"s-g{level}", f"f-g{level}", 1.2 + 0.4 * level, ""
        return "s-frozen", "f-frozen", 1.2, " dashed"
