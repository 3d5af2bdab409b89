"""The lines that a display shows of a run that goes on."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Self

from rich.text import Text

from gradscope.analysis.columns import Cells, Curve
from gradscope.analysis.live_run import LayerNorms, LiveLayer, LiveRun, Series, Track
from gradscope.analysis.training_run import CurveKind
from gradscope.analysis.view import shown_site
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.finding import Finding
from gradscope.report.documents.run_phrasing import CURVE_NAMES, duration, extreme_text
from gradscope.report.finding_phrasing import level_counts
from gradscope.report.formats.text_lines import STYLES, hanging
from gradscope.report.number_format import figure
from gradscope.report.page import Page, Signs
from gradscope.report.strips import BROKEN, NOTHING, ZERO, Scale, scale_of, strip

_GAP = 2
_VALUE = 8
_LABEL, _LABEL_WIDE = 13, 22
_STRIP = 96
_TAILS = ((124, 44), (92, 30), (72, 25))
"""Pairs of a width and the space for the text after a strip."""
_OPTIMIZERS = 2
_STYLES = {BROKEN: "bold red", ZERO: "magenta", NOTHING: ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class LineLayout:
    """The columns of a page; a column of 0 does not fit."""

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
        """Return a line with its parts in the columns."""
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
    positions = {sign: min(position, len(levels) - 1) for position, sign in enumerate(signs.levels)}
    text = Text()
    for style, run in groupby(
        strip(cells, scale, signs),
        lambda sign: _STYLES[sign] if sign in _STYLES else levels[positions[sign]],
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
        figure(series.last),
        # A constant learning rate needs no strip.
        Text()
        if kind == "rate" and is_constant
        else drawn(course.cells, scale_of(curve), page.signs),
        extreme_text(curve) or _from(course.ends, page.signs),
    )


def _from(ends: tuple[float, ...], signs: Signs) -> str:
    first, last = figure(ends[0]), figure(ends[-1])
    return "" if first == last else f"from {first}"


def _clip(track: Track, layout: LineLayout, page: Page) -> Iterator[Text]:
    """Yield the norms before clipping and how often they exceeded the limit."""
    if not track.clips:
        return
    limit = figure(track.limit)
    last = track.before_clip.last
    if track.is_by_value or last is None:
        yield layout.line(Text("clip"), "", Text(f"elements to {limit}"), "")
        return
    share = f"{100 * track.clipped / track.clips:.0f} % clipped"
    cells = track.before_clip.course(layout.strip).cells
    norms = drawn(cells, Scale.decades([cells]), page.signs)
    yield layout.line(
        Text("before clip"),
        figure(last),
        # If only one of both fits, the share says more than its history.
        norms if layout.tail else Text(share),
        f"{share} to {limit}",
    )


def _scaler(track: Track, layout: LineLayout, page: Page) -> Iterator[Text]:
    if track.scale is None:
        return
    skipped = f"{counted(track.skipped, 'step')} skipped" if track.skipped else ""
    # Scales are powers of two, and known as such.
    scale = f"{track.scale:,.0f}" if 1 <= track.scale < 1e7 else figure(track.scale)
    yield layout.line(Text("loss scale"), scale, Text(skipped), "")


_HEAT = ("#4a5fb5", "#3f7fc8", "#2f9fc0", "#27a98f", "#4fae5a", "#93ab35", "#c9a227", "#e5801f")
"""Colours from cold to warm, one per level of a strip, readable on dark and light."""


def layer_lines(norms: LayerNorms, layout: LineLayout, page: Page, most: int) -> list[Text]:
    """Return a title and a line for each layer; nothing if no gradient was measured."""
    rows = norms.rows(most - 1, layout.strip)
    if not any(cell is not None for row in rows for cell in row.cells):
        return []
    # The title and the number of the other rows take a line each.
    shown = rows if len(rows) < most else rows[: most - 2]
    scale = Scale.decades(row.cells for row in shown)
    lines = [_title(norms, scale, layout, page)]
    for row in shown:
        tail = page.spell(figure(row.cells[-1]))
        heat = drawn(row.cells, scale, page.signs, _HEAT)
        lines.append(layout.line(_label(row, layout.name, page), "", heat, tail))
    if more := len(rows) - len(shown):
        lines.append(Text(f"  {page.signs.ellipsis} {more:,} more", style="dim"))
    return lines


def _title(norms: LayerNorms, scale: Scale, layout: LineLayout, page: Page) -> Text:
    signs = page.signs
    steps = norms.steps[-layout.strip :]
    low, high = figure(scale.low), figure(scale.high)
    first, last = f"{steps[0]:,}", f"{steps[-1]:,}"
    span = f"step {last}" if first == last else f"steps {first}{signs.ellipsis}{last}"
    ends = f"{signs.levels[0]} {low} to {signs.levels[-1]} {high}"
    title = Text("layers  ", style="bold")
    parts = (f"gradient norms of {span}, {ends}", f"{span}, {ends}", ends)
    room = page.width - title.cell_len
    fitting = next((text for text in parts if len(text) <= room), "")
    return title.append(fitting, "not bold dim")


def _label(row: LiveLayer, width: int, page: Page) -> Text:
    """Return a layer's name and class in a line of that width."""
    module, signs = row.module, page.signs
    class_name = page.spell(module.rows[0].class_name)
    copies = f" {signs.times}{module.copies}" if module.copies > 1 else ""
    # Names of deep modules keep two thirds of the width.
    indent = min(2 * row.level, width // 3)
    name = page.shorten(page.spell(module.name or class_name), width - indent - len(copies))
    text = Text(" " * indent).append(name).append(copies, "bold")
    room = width - text.cell_len - 1
    if module.name and class_name != module.name and len(class_name) <= room:
        text.append(f" {class_name}", "dim")
    return text


_FINDINGS = 3
"""Number of findings shown before the layers if both do not fit."""
_LAYERS_LEAST, _LAYERS_MOST = 3, 14
"""Minimum and maximum number of lines of layers, with their title."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdict of the rules on the steps so far."""

    findings: tuple[Finding, ...]
    """Findings, the worst first."""
    steps: int
    """Number of judged steps."""
    is_final: bool = False
    """Whether the next judgement is the one at the end of the run."""


def frame(
    run: LiveRun, judged: Judged | None, page: Page, height: int, *, planned: int | None = None
) -> list[Text]:
    """Return the lines, none longer than the page is wide.

    Args:
        run: What is known of the run.
        judged: None where no rule has judged yet.
        page: Its width, characters and folder.
        height: How many lines there is room for.
        planned: How many steps are recorded at most, where that is limited.
    """
    lines = [_header(run, planned, page)]
    room = height - 1
    found = [] if judged is None else judged.findings
    # Findings have priority: the other parts use the remaining lines.
    kept = 0 if judged is None else 1 + min(len(found), _FINDINGS)
    layout = LineLayout.of(page)
    lines += curve_lines(run, layout, page, max(room - kept, 1))
    layers = height - len(lines) - kept
    if layers >= _LAYERS_LEAST:
        lines += layer_lines(run.layers, layout, page, min(layers, _LAYERS_MOST))
    if judged is not None:
        lines += _findings(judged, page, height - len(lines))
    # A line that wraps takes the place of a second one, which the height does not provide.
    for line in lines:
        line.truncate(page.width, overflow="crop")
    return lines[: max(height, 0)]


def _header(run: LiveRun, planned: int | None, page: Page) -> Text:
    """Return `gradscope run train.py · 1,204 steps · 83.3 steps/s · 1 min 12 s`, and a rule."""
    words = _progress(run, planned, page) or ["waiting for the first optimizer step"]
    title = Text().append_text(page.text(run.name, "bold"))
    for position, word in enumerate(words):
        room = page.width - title.cell_len - len(page.signs.separator)
        if position and len(word) > room:
            break
        title.append(page.signs.separator, "dim").append(word)
    program = Text().append("gradscope run ", "bold cyan")
    if program.cell_len + title.cell_len <= page.width:
        title = program.append_text(title)
    rest = page.width - title.cell_len - 1
    return title.append(f" {page.signs.rule * max(rest, 0)}", "dim cyan")


def _progress(run: LiveRun, planned: int | None, page: Page) -> list[str]:
    if not run.steps:
        return []
    parts = [f"{run.steps:,} of {planned:,} steps" if planned else counted(run.steps, "step")]
    if run.is_over:
        return [*parts, "recording has stopped"]
    speed = [] if run.speed is None else [f"{figure(run.speed)} steps/s"]
    return [*parts, *speed, duration(run.seconds)]


def _findings(judged: Judged, page: Page, room: int) -> list[Text]:
    """Return the number of findings, and as many of them as fit."""
    after = f"  after {counted(judged.steps, 'step')}"
    if judged.is_final:
        after += "; next at the end, since judging takes long"
    found = judged.findings
    if not found:
        return [Text("no findings", style="bold green").append(after, "not bold dim")]
    head = Text(", ".join(level_counts(found)), STYLES[found[0].severity])
    head.append(after, "not bold default dim")
    shown = found if len(found) < room else found[: max(room - 2, 0)]
    each = max((room - 1) // max(len(found), 1), 1)
    lines = [head, *(line for one in shown for line in _finding(one, page, each))]
    if more := len(found) - len(shown):
        lines.append(Text(f"  {page.signs.ellipsis} {more:,} more", style="dim"))
    return lines


def _finding(finding: Finding, page: Page, most: int) -> list[Text]:
    """Return `error[GS301] train.py:10 missing-zero-grad: backward() adds to…` in a few lines."""
    level = f"{finding.severity}[{finding.rule}]"
    position = page.spell(shown_site(finding.location, page.root))
    head = " ".join(filter(None, (level, position, f"{finding.name}:")))
    words = Text(level, STYLES[finding.severity]).append(head.removeprefix(level), "bold")
    words.append(page.spell(f" {' '.join(finding.message.split())}"))
    text = hanging(words, page.width, indent=2, further=2)
    lines = list(text.split())
    if len(lines) > most:
        last, end = lines[most - 1], page.signs.ellipsis
        last.truncate(page.width - len(end))
        last.append(end)
    return lines[:most]
