"""A drawing: vertices, boxes and links with their positions in pixels from the top left corner."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from itertools import chain, pairwise
from typing import Self

from gradscope.analysis.folding import Span
from gradscope.frozen import dataclass
from gradscope.report.graph.arrangement import Point
from gradscope.report.graph.labels import norms_text, text_width
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
    """A vertex and its position."""

    vertex: Vertex
    frame: Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedBox:
    """A box and its position."""

    box: Box
    frame: Frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Position of a norm's text: the start of its base line, or the end."""

    x: float
    y: float
    is_end: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedLink:
    """A link and its points, from source to target."""

    link: Link
    ways: tuple[tuple[Point, ...], ...]
    """Lines of the link: one, or for a link to the next copy two, out of the box and into it."""
    is_back: bool
    """Whether it leads up, as a link that closes a cycle does."""
    is_beside: bool = False
    """Whether it leads aside, from a parameter to the operation beside it."""
    figure: Figure | None = None
    """Text of the norm; None if there is no space."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A part of a graph, laid out: the forward flows from top to bottom."""

    width: float
    height: float
    boxes: tuple[PlacedBox, ...]
    """Boxes, outermost first."""
    vertices: tuple[PlacedVertex, ...]
    links: tuple[PlacedLink, ...]


LEVELS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class NormScale:
    """The norms of a drawing, from the least that is not zero to the greatest that is finite."""

    low: float
    high: float

    @classmethod
    def of(cls, drawing: Drawing) -> Self | None:
        """Return the scale of a drawing; None if no norms differ."""
        vertices = (placed.vertex.norms for placed in drawing.vertices)
        ends = list(_ends(chain(vertices, (placed.link.norms for placed in drawing.links))))
        return cls(low=min(ends), high=max(ends)) if ends else None

    def level(self, norms: Span) -> int:
        """Return 0 to 6; for a range, the level of its middle."""
        known = list(_ends([norms]))
        if not known:
            return 0
        middle = sum(map(math.log10, known)) / len(known)
        low, high = math.log10(self.low), math.log10(self.high)
        # A narrow range of norms uses only the middle levels: its differences mean little.
        room = max(0.0, 1.0 - (high - low)) / 2
        share = (middle - low + room) / (high - low + 2 * room)
        # The greatest norm has a share of 1, which is one beyond the last level.
        return min(LEVELS - 1, max(0, int(share * LEVELS)))


def _ends(ranges: Iterable[Span | None]) -> Iterable[float]:
    for norms in ranges:
        if norms is not None:
            ends = (norms.low, norms.high)
            yield from (end for end in ends if 0.0 < end < math.inf)


FIGURE_FONT = 9.5
_HEIGHT = 11.0
_ASIDE = 5.0
_ROOM = text_width("0.00e-00", FIGURE_FONT)
_CURVE = 8
"""Number of pieces of a curve that are kept free of text."""
_BAND = 48.0


def with_norms(drawing: Drawing, links: Sequence[PlacedLink]) -> tuple[PlacedLink, ...]:
    """Return the links with the positions of their norms; None without space.

    Links that bring one gradient to one vertex have it written once.
    """
    taken = _taken(drawing, links)
    reported: set[tuple[int, str]] = set()
    found = []
    for link in links:
        key = (link.link.source, norms_text(link.link.norms))
        figure = _free(link, key[1], taken) if _has_figure(link) and key not in reported else None
        if figure is not None:
            reported.add(key)
        found.append(replace(link, figure=figure))
    return tuple(found)


def _has_figure(link: PlacedLink) -> bool:
    """Return whether a link has a norm that is not shown elsewhere; a parameter shows its own."""
    return not link.is_beside and link.link.kind != "cut" and link.link.norms is not None


def curve_point(start: Point, end: Point, share: float) -> Point:
    """Return a point of the curve that leads down, aside and down again."""
    ease = share * share * (3 - 2 * share)
    # The control points are halfway down, so the height is not proportional to the parameter.
    fall = 1.5 * share * (1 - share) + share**3
    return (start[0] + (end[0] - start[0]) * ease, start[1] + (end[1] - start[1]) * fall)


@dataclass(slots=True)
class _Taken:
    """What must not be written over, by height."""

    # A large drawing has thousands of frames: each is compared with those at its height only.
    bands: dict[int, list[Frame]] = field(default_factory=dict)

    def add(self, frame: Frame) -> None:
        for band in _bands(frame):
            self.bands.setdefault(band, []).append(frame)

    def is_free(self, frame: Frame) -> bool:
        return not any(
            _overlap(frame, other) for band in _bands(frame) for other in self.bands.get(band, ())
        )


def _taken(drawing: Drawing, links: Sequence[PlacedLink]) -> _Taken:
    taken = _Taken()
    for placed in drawing.vertices:
        taken.add(placed.frame)
    for box in drawing.boxes:
        frame = box.frame
        # Of a box, only the title and the frame are in the way.
        taken.add(replace(frame, height=18.0))
        for edge in (frame.x, frame.right):
            taken.add(replace(frame, x=edge - 1, width=2.0))
    for link in links:
        for way in link.ways:
            for frame in _along(way, is_beside=link.is_beside):
                taken.add(frame)
    return taken


def _bands(frame: Frame) -> range:
    return range(int(frame.y // _BAND), int(frame.bottom // _BAND) + 1)


def _overlap(one: Frame, other: Frame) -> bool:
    return (
        one.x < other.right
        and other.x < one.right
        and one.y < other.bottom
        and other.y < one.bottom
    )


def _along(way: Sequence[Point], *, is_beside: bool) -> Iterator[Frame]:
    """Yield the area that a link covers."""
    for start, end in pairwise(way):
        steps = 1 if start[0] == end[0] or is_beside else _CURVE
        points = [curve_point(start, end, step / steps) for step in range(steps + 1)]
        for (x, y), (right, bottom) in pairwise(points):
            yield Frame(
                x=min(x, right) - 2,
                y=min(y, bottom),
                width=abs(right - x) + 4,
                height=abs(bottom - y),
            )


def _free(link: PlacedLink, text: str, taken: _Taken) -> Figure | None:
    # Room for any norm, so that equal modules look alike.
    width = max(text_width(text, FIGURE_FONT), _ROOM)
    for x, y in _candidates(link.ways[0]):
        for is_end in (False, True):
            left = x - _ASIDE - width if is_end else x + _ASIDE
            frame = Frame(x=left, y=y, width=width, height=_HEIGHT)
            if taken.is_free(frame):
                taken.add(frame)
                return Figure(
                    x=x - _ASIDE if is_end else x + _ASIDE, y=y + _HEIGHT - 2, is_end=is_end
                )
    return None


def _candidates(way: Sequence[Point]) -> Iterator[Point]:
    """Yield upper corners beside a link: at its source, at its target, in its middle."""
    (x, y), (last, bottom) = way[0], way[-1]
    yield (x, y + 4)
    yield (x, y + 12)
    yield (last, bottom - _HEIGHT - 7)
    for (start, top), (end, low) in pairwise(way):
        if start == end and low - top > _HEIGHT:
            yield (start, (top + low - _HEIGHT) / 2)
