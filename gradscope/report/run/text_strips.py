"""Curves and layers of a run in the text report, their columns below each other."""

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gradscope.analysis.columns import Cells, Columns, Curve, curves
from gradscope.analysis.folding import last_name
from gradscope.analysis.layers import Layer, layers
from gradscope.analysis.report import Report
from gradscope.analysis.rows import ModuleRow
from gradscope.analysis.training_run import TrainingRun
from gradscope.analysis.view import ViewOptions
from gradscope.phrasing import counted
from gradscope.report.number_format import figure
from gradscope.report.page import Page, Signs
from gradscope.report.run.phrasing import (
    CURVE_NAMES,
    course_text,
    curves_note,
    extreme_text,
    layer_ends,
    layer_name,
    optimizer_text,
)
from gradscope.report.run.text import OPTIMIZERS_SHOWN
from gradscope.report.text_findings import hanging
from gradscope.report.text_modules import module_label, trend

BROKEN, ZERO, NOTHING = "!", "0", " "
"""What a column shows that is NaN or infinite, exactly zero, or was not measured."""
_LEAST_SHARE = 0.05
"""What moves by less of its size is drawn as flat as that: noise is no mountain."""
_LEAST_DECADES = 1.0
"""Smallest range of a logarithmic scale, in decades."""
_FAR = 1000.0
"""Positive numbers that span more are drawn on a logarithmic scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Which numbers the lowest and the highest character stand for."""

    low: float
    high: float
    is_logarithmic: bool

    @classmethod
    def decades(cls, strips: Iterable[Cells]) -> Self:
        """Return the logarithmic scale that holds all the positive numbers."""
        known = [
            value
            for cells in strips
            for value in cells
            if value is not None and 0 < value < math.inf
        ]
        low, high = (min(known), max(known)) if known else (1.0, 1.0)
        wanted = _LEAST_DECADES - (math.log10(high) - math.log10(low))
        if wanted > 0:
            # In the middle of its decade.
            low = max(low * 10 ** (-wanted / 2), math.ulp(0.0))
            high = min(high * 10 ** (wanted / 2), sys.float_info.max)
        return cls(low=low, high=high, is_logarithmic=True)

    @classmethod
    def linear(cls, cells: Cells) -> Self:
        """Return a linear scale; a logarithmic one for positive numbers that span very much."""
        known = [value for value in cells if value is not None and math.isfinite(value)]
        low, high = (min(known), max(known)) if known else (0.0, 0.0)
        if low > 0 and high / low > _FAR:
            return cls.decades([cells])
        wanted = _LEAST_SHARE * max(abs(low), abs(high)) - (high - low)
        if wanted > 0:
            low = max(low - wanted / 2, -sys.float_info.max)
            high = min(high + wanted / 2, sys.float_info.max)
        return cls(low=low, high=high, is_logarithmic=False)

    def share(self, value: float) -> float:
        """Return where a finite number lies between the ends, 0 to 1."""
        if self.is_logarithmic:
            if value <= 0:
                return 0.0
            value, low, high = math.log10(value), math.log10(self.low), math.log10(self.high)
        else:
            low, high = self.low, self.high
        # Halves, because the difference of two huge numbers is infinite.
        spread = high / 2 - low / 2
        return min(max((value / 2 - low / 2) / spread, 0.0), 1.0) if spread > 0 else 0.5


def scale_of(curve: Curve) -> Scale:
    """Return the scale that a curve is drawn on."""
    cells = curve.course.cells
    is_linear = curve.kind in ("loss", "rate")
    return Scale.linear(cells) if is_linear else Scale.decades([cells])


def strip(cells: Cells, scale: Scale, signs: Signs) -> str:
    """Return the numbers as characters."""
    return "".join(_character(value, scale, signs) for value in cells)


def _character(value: float | None, scale: Scale, signs: Signs) -> str:
    if value is None:
        return NOTHING
    if not math.isfinite(value):
        return BROKEN
    if value == 0.0 and scale.is_logarithmic:
        return ZERO
    return signs.levels[round(scale.share(value) * (len(signs.levels) - 1))]


_GAP = 2
_WIDE = 112
_LABEL = 17
_ROWS = 40
_NUMBER, _EXTREME = 9, 26
_LONGEST = 84
_STYLES = {BROKEN: "bold red", ZERO: "magenta"}


@dataclass(frozen=True, slots=True, kw_only=True)
class StripLayout:
    """The columns of a page for strips; 0 is a column that it has no room for."""

    label: int
    strip: int
    course: int
    extreme: int

    @classmethod
    def of(cls, page: Page, modules: Iterable[ModuleRow]) -> Self:
        """Return the layout for a page and the names of modules that may stand on it."""
        # Containers below the root may be merged with it.
        names = ((row.path if row.depth < 2 else last_name(row), row) for row in modules)
        widths = (2 * row.depth + len(f"{name} {row.class_name}") for name, row in names)
        widest = max(widths, default=0)
        label = max(min(page.width * 3 // 10, 30, max(widest, _LABEL)), 10)
        extreme = _EXTREME + _GAP if page.width >= _WIDE else 0
        course = 2 * _NUMBER + len(f" {page.signs.arrow} ")
        room = page.width - label - _GAP - course - _GAP - extreme
        return cls(
            label=label,
            strip=max(min(room, _LONGEST), 8),
            course=course,
            extreme=max(extreme - _GAP, 0),
        )


def strips_sections(
    report: Report, run: TrainingRun, view: ViewOptions, page: Page
) -> Iterator[list[RenderableType]]:
    """Yield the curves, then the layers."""
    if not run.steps:
        return
    layout = StripLayout.of(page, report.modules)
    columns = Columns.over(run, layout.strip)
    yield list(_curves(run, columns, layout, page))
    yield list(_layers(report, view, columns, layout, page))


def _curves(
    run: TrainingRun, columns: Columns, layout: StripLayout, page: Page
) -> Iterator[RenderableType]:
    drawn = curves(run, columns, OPTIMIZERS_SHOWN)
    if not drawn:
        return
    share = f", up to {columns.widest:,} in a column" if columns.widest > 1 else ""
    title = f"  {counted(len(run.steps), 'step')} from left to right{share}"
    yield Text("Curves", style="bold").append(title, "not bold dim")
    if note := curves_note(run):
        yield hanging(note, page, indent=_GAP)
    for position in dict.fromkeys(curve.optimizer for curve in drawn):
        if len(run.optimizers) > 1:
            yield Text("  ").append_text(page.text(optimizer_text(run.optimizers[position], run)))
        of_one = [curve for curve in drawn if curve.optimizer == position]
        table = _table(columns, layout)
        for curve in of_one:
            _add(table, _curve_row(curve, page), layout, page)
        _add_axis(table, columns)
        yield table
        if not layout.extreme:
            yield from _extremes(of_one, page)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A strip, and what stands before and behind it."""

    label: Text
    cells: Cells
    scale: Scale
    course: str
    extreme: str


def _curve_row(curve: Curve, page: Page) -> _Row:
    cells = curve.course.cells
    return _Row(
        label=Text(f"  {CURVE_NAMES[curve.kind]}"),
        cells=cells,
        scale=scale_of(curve),
        course=course_text(curve.course, page.signs),
        extreme=extreme_text(curve, page.signs),
    )


def _extremes(drawn: Iterable[Curve], page: Page) -> Iterator[Text]:
    """Yield in a line of its own what a narrow page has no column for."""
    words = [
        f"{CURVE_NAMES[curve.kind]} {text}"
        for curve in drawn
        if (text := extreme_text(curve, page.signs))
    ]
    if words:
        yield hanging("; ".join(words), page, indent=_GAP)


def _layers(
    report: Report, view: ViewOptions, columns: Columns, layout: StripLayout, page: Page
) -> Iterator[RenderableType]:
    found = layers(report, view, columns)
    rows = found[:_ROWS]
    if not any(cell is not None for row in rows for cell in row.cells):
        return
    scale = Scale.decades(row.cells for row in rows)
    low, high = figure(scale.low, page.signs), figure(scale.high, page.signs)
    levels = page.signs.levels
    title = f"  gradient norms, logarithmic from {levels[0]} {low} to {levels[-1]} {high}"
    yield Text("Layers", style="bold").append(title, "not bold dim")
    if legend := _legend([row.cells for row in rows]):
        yield Text(f"  {legend}", style="dim")
    table = _table(columns, layout)
    for row in rows:
        shown = _Row(
            label=_label(row, layout, page),
            cells=row.cells,
            scale=scale,
            course=layer_ends(row, page.signs),
            extreme=f"its modules {course}" if (course := trend(row.module, page).plain) else "",
        )
        _add(table, shown, layout, page)
    _add_axis(table, columns)
    yield table
    if more := len(found) - len(rows):
        words = f"{counted(more, 'more row')}: --module NAME shows those of a module"
        yield Text(f"  {page.signs.ellipsis} {words}", style="dim")


def _label(layer: Layer, layout: StripLayout, page: Page) -> Text:
    if not (layer.module.name or layer.module.rows[0].class_name):
        return Text(layer_name(layer)[: layout.label], style="dim")
    return module_label(layer.module, layer.level, layout.label, page)


def _legend(strips: Iterable[Cells]) -> str:
    """Return what the signs mean that are no levels, those that occur."""
    known = [cell for cells in strips for cell in cells]
    words = []
    if any(cell is not None and not math.isfinite(cell) for cell in known):
        words.append(f"{BROKEN} NaN or infinite")
    if any(cell == 0.0 for cell in known):
        words.append(f"{ZERO} exactly zero")
    if any(cell is None for cell in known):
        words.append("blank: none measured")
    return ", ".join(words)


def _table(columns: Columns, layout: StripLayout) -> Table:
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column(width=layout.label, overflow="fold")
    table.add_column(width=columns.count, no_wrap=True)
    table.add_column(width=layout.course, overflow="fold")
    if layout.extreme:
        table.add_column(width=layout.extreme, style="dim")
    return table


def _add(table: Table, row: _Row, layout: StripLayout, page: Page) -> None:
    text = Text()
    for sign in strip(row.cells, row.scale, page.signs):
        text.append(sign, _STYLES.get(sign, "cyan"))
    cells = [row.label, text, Text(row.course)]
    table.add_row(*cells, *([Text(row.extreme)] if layout.extreme else []))


def _add_axis(table: Table, columns: Columns) -> None:
    """Add the first and the last step below the strips' ends."""
    first, last = f"{columns.steps[0]:,}", f"{columns.steps[-1]:,}"
    gap = columns.count - len(first) - len(last)
    if gap > 0:
        table.add_row("", Text(f"{first}{' ' * gap}{last}", style="dim"), "")
