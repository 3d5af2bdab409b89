"""Loss, norms and learning rate of a run that goes on, a line each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Self

from rich.text import Text

from gradscope.analysis.columns import Cells, Curve, CurveKind
from gradscope.analysis.live_run import LiveRun, Series, Track
from gradscope.phrasing import counted
from gradscope.report.figures import figure
from gradscope.report.page import Page, Signs
from gradscope.report.run.strips import BROKEN, NOTHING, ZERO, Scale, scale_of, strip
from gradscope.report.run.words import CURVE_NAMES, extreme_text

_GAP = 2
_VALUE = 8
_LABEL, _LABEL_WIDE = 13, 22
_STRIP = 96
_TAILS = ((124, 44), (92, 30), (72, 25))
"""From which width on what stands behind a strip has how much room."""
_OPTIMIZERS = 2
_STYLES = {BROKEN: "bold red", ZERO: "magenta", NOTHING: ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class LineLayout:
    """The columns of a page; 0 is a column that it has no room for."""

    label: int
    value: int
    strip: int
    tail: int

    @classmethod
    def of(cls, page: Page) -> Self:
        """Return the layout for a page."""
        tail = next((room for width, room in _TAILS if page.width >= width), 0)
        label = _LABEL_WIDE if page.width >= _TAILS[0][0] else _LABEL
        rest = page.width - label - _VALUE - 2 * _GAP - (tail + _GAP if tail else 0)
        return cls(label=label, value=_VALUE, strip=max(min(rest, _STRIP), 1), tail=tail)

    @property
    def name(self) -> int:
        """The width before the strips' and the gap to them, for what has no value there."""
        return self.label + _GAP + self.value

    def line(self, label: Text, value: str, strip: Text, tail: str) -> Text:
        """Return a line whose parts stand in the columns."""
        text = label.copy()
        if value:
            text.pad_right(max(self.label + _GAP - label.cell_len, 1))
            placed = value.rjust(self.value) if self.tail else value.ljust(self.value)
            text.append(placed, "bold red" if value in ("nan", "inf", "-inf") else "")
        text.pad_right(max(self.name + _GAP - text.cell_len, 0))
        text.append_text(strip)
        if tail and self.tail:
            text.pad_right(max(self.name + 2 * _GAP + self.strip - text.cell_len, 0))
            text.append(tail, "dim")
        return text


def drawn(cells: Cells, scale: Scale, signs: Signs, levels: Sequence[str] = ("cyan",)) -> Text:
    """Return numbers as a strip of characters.

    Args:
        cells: The numbers.
        scale: What the characters stand for.
        signs: The characters to use.
        levels: A style for each level, or one for all.
    """
    places = {sign: min(place, len(levels) - 1) for place, sign in enumerate(signs.levels)}
    text = Text()
    for style, run in groupby(
        strip(cells, scale, signs),
        lambda sign: _STYLES[sign] if sign in _STYLES else levels[places[sign]],
    ):
        text.append("".join(run), style)
    return text


def curve_lines(run: LiveRun, layout: LineLayout, page: Page, most: int) -> list[Text]:
    """Return a line for each curve of the first optimizers; what matters most where not all fit."""
    tracks = list(run.tracks.values())
    shown = tracks[:_OPTIMIZERS]
    has_others = len(tracks) > 1
    of_each = [list(_track_lines(track, layout, page, has_others)) for track in shown]
    more = len(tracks) - len(shown)
    room = (most - bool(more)) // max(len(shown), 1)
    lines = [line for lines in of_each for line in lines[: max(room, 1)]]
    if more:
        lines.append(Text(f"{page.signs.ellipsis} {counted(more, 'more optimizer')}", style="dim"))
    return lines


def _track_lines(track: Track, layout: LineLayout, page: Page, has_others: bool) -> Iterator[Text]:
    if has_others:
        title = page.text(" ".join(filter(None, (track.name, track.title))), "bold")
        yield title.append(f"  {counted(track.steps, 'step')}", "not bold dim")
    yield from _curve("loss", track.curves["loss"], layout, page)
    yield from _curve("norm", track.curves["norm"], layout, page)
    yield from _clip(track, layout, page)
    yield from _curve("rate", track.curves["rate"], layout, page)
    yield from _scaler(track, layout, page)


def _curve(kind: CurveKind, series: Series, layout: LineLayout, page: Page) -> Iterator[Text]:
    if series.last is None:
        return
    course = series.course(layout.strip)
    curve = Curve(kind=kind, optimizer=0, course=course)
    is_constant = course.lowest == course.highest and not course.nonfinite
    yield layout.line(
        Text(CURVE_NAMES[kind]),
        figure(series.last, page.signs),
        # A learning rate that stays as it is tells no more than its number.
        Text()
        if kind == "rate" and is_constant
        else drawn(course.cells, scale_of(curve), page.signs),
        extreme_text(curve, page.signs) or _from(course.ends, page.signs),
    )


def _from(ends: tuple[float, ...], signs: Signs) -> str:
    first, last = figure(ends[0], signs), figure(ends[-1], signs)
    return "" if first == last else f"from {first}"


def _clip(track: Track, layout: LineLayout, page: Page) -> Iterator[Text]:
    """Yield the norms before clipping and how often they were too large."""
    if not track.clips:
        return
    limit = figure(track.limit, page.signs)
    last = track.before_clip.last
    if track.is_by_value or last is None:
        yield layout.line(Text("clip"), "", Text(f"elements to {limit}"), "")
        return
    share = f"{100 * track.clipped / track.clips:.0f} % clipped"
    cells = track.before_clip.course(layout.strip).cells
    norms = drawn(cells, Scale.decades([cells]), page.signs)
    yield layout.line(
        Text("before clip"),
        figure(last, page.signs),
        # Where there is room for one of them, the share says more than its history.
        norms if layout.tail else Text(share),
        f"{share} to {limit}",
    )


def _scaler(track: Track, layout: LineLayout, page: Page) -> Iterator[Text]:
    if track.scale is None:
        return
    skipped = f"{counted(track.skipped, 'step')} skipped" if track.skipped else ""
    # A power of two, and known as that.
    scale = f"{track.scale:,.0f}" if 1 <= track.scale < 1e7 else figure(track.scale, page.signs)
    yield layout.line(Text("loss scale"), scale, Text(skipped), "")
