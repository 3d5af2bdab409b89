"""Where the norms of links are written: beside them, where nothing else is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from gradscope.report.graph.arrangement import Point
from gradscope.report.graph.drawing import Drawing, Figure, Frame, PlacedLink
from gradscope.report.graph.labels import norms_text
from gradscope.report.graph.text_width import text_width

FIGURE_FONT = 9.5
_HEIGHT = 11.0
_ASIDE = 5.0
_ROOM = text_width("0.00e-00", FIGURE_FONT)
_CURVE = 8
"""Pieces of a curve that are kept clear."""
_BAND = 48.0


def with_figures(drawing: Drawing, links: Sequence[PlacedLink]) -> tuple[PlacedLink, ...]:
    """Return the links with the places of their norms; None where there is no room.

    Links that bring one gradient to one vertex have it written once.
    """
    taken = _taken(drawing, links)
    told: set[tuple[int, str]] = set()
    found = []
    for link in links:
        key = (link.link.source, norms_text(link.link.norms))
        figure = _free(link, key[1], taken) if _is_told(link) and key not in told else None
        if figure is not None:
            told.add(key)
        found.append(replace(link, figure=figure))
    return tuple(found)


def _is_told(link: PlacedLink) -> bool:
    """Return whether a link has a norm that stands nowhere else; a parameter has its own."""
    return not link.is_beside and link.link.kind != "cut" and link.link.norms is not None


def curve_point(start: Point, end: Point, share: float) -> Point:
    """Return a point of the curve that leads down, aside and down again."""
    ease = share * share * (3 - 2 * share)
    # The curve's control points lie halfway down: its height is no even share of the way.
    fall = 1.5 * share * (1 - share) + share**3
    return (start[0] + (end[0] - start[0]) * ease, start[1] + (end[1] - start[1]) * fall)


@dataclass(slots=True)
class _Taken:
    """What must not be written over, by height."""

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
    """Yield what a link covers."""
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
