"""The shapes of a drawing as elements of SVG."""

from collections.abc import Sequence
from itertools import pairwise
from xml.etree.ElementTree import Element, SubElement

from gradscope.phrasing import printable
from gradscope.report.graph.arrangement import Point
from gradscope.report.graph.drawing import Frame


def number(value: float) -> str:
    """Return a number of pixels with one digit behind the point."""
    return f"{value:.1f}".removesuffix(".0")


def add_title(parent: Element, words: str) -> None:
    """Add what is told where the pointer rests."""
    SubElement(parent, "title").text = words


def add_text(
    parent: Element, words: str, at: Point, size: float, look: str, anchor: str = "start"
) -> None:
    """Add a line of text whose base line begins at a point, or has its middle or end there."""
    attributes = {
        "x": number(at[0]),
        "y": number(at[1]),
        "font-size": number(size),
        "class": look,
    }
    if anchor != "start":
        attributes["text-anchor"] = anchor
    SubElement(parent, "text", attributes).text = printable(words)


def add_frame(parent: Element, frame: Frame, look: str, corner: float) -> None:
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
            "class": look,
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
    """Return a triangle whose tip is where a way ends."""
    x, y = points[-1]
    across, along = number(size * 0.6), number(size)
    tip = f"M{number(x)} {number(y)}"
    if is_beside:
        return f"{tip}l-{along} -{across}v{number(size * 1.2)}z"
    is_up = len(points) > 1 and points[-2][1] > y
    return f"{tip}l-{across} {'' if is_up else '-'}{along}h{number(size * 1.2)}z"
