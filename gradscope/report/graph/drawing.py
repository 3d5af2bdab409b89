"""A drawing: vertices, boxes and links with their places, in pixels from the top left corner."""

from dataclasses import dataclass, replace

from gradscope.report.graph.arrangement import Point
from gradscope.report.graph.vertices import Box, Link, Vertex


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Where something is."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, right: float, down: float) -> "Frame":
        """Return the same elsewhere."""
        return replace(self, x=self.x + right, y=self.y + down)

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.y + self.height


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedVertex:
    """A vertex and its place."""

    vertex: Vertex
    frame: Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedBox:
    """A box and its place."""

    box: Box
    frame: Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Where a norm is written: the start of its base line, or the end."""

    x: float
    y: float
    is_end: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedLink:
    """A link and the points that it leads through, from source to target."""

    link: Link
    ways: tuple[tuple[Point, ...], ...]
    """One; of a link to the next copy two, out of the box and into it."""
    is_back: bool
    """Whether it leads up somewhere, as one that closes a circle."""
    is_beside: bool = False
    """Whether it leads aside, from a parameter to the operation that it stands beside."""
    figure: Figure | None = None
    """Of its norm; None where there is no room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A part of a graph, laid out: the forward flows from top to bottom."""

    width: float
    height: float
    boxes: tuple[PlacedBox, ...]
    """Outermost first."""
    vertices: tuple[PlacedVertex, ...]
    links: tuple[PlacedLink, ...]
