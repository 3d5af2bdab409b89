"""Curves of all sides in the text report: one below the other, on one scale."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gradscope.analysis.columns import Cells, Columns, course
from gradscope.comparison.comparison import Comparison
from gradscope.comparison.curves import ComparedCurve, SideCurve
from gradscope.comparison.side import letter_of
from gradscope.phrasing import counted
from gradscope.report.comparison.words import CURVE_NAMES, by_side, parting_text
from gradscope.report.figures import figure
from gradscope.report.page import Page
from gradscope.report.run.strips import BROKEN, ZERO, Scale, strip
from gradscope.report.run.words import course_text
from gradscope.report.text_findings import hanging

_SHOWN = 8
_SIDES = 8
_GAP, _COURSE, _EXTREME = 2, 21, 28
_LABEL, _LONGEST, _WIDE = 12, 84, 112
_STYLES = {BROKEN: "bold red", ZERO: "magenta"}


def curves_section(comparison: Comparison, page: Page) -> Iterator[RenderableType]:
    """Yield each curve of every side on one scale, and where sides leave the base."""
    if not comparison.curves:
        return
    title = hanging(f"Curves  {_title(comparison.curves)}", page, further=_GAP)
    title.stylize("dim")
    title.stylize("not dim bold", 0, len("Curves"))
    yield title
    columns = Columns(_steps(comparison.curves), _width(page))
    known = ""
    for curve in comparison.curves[:_SHOWN]:
        if curve.optimizer and curve.optimizer != known:
            yield page.text(f"  {curve.optimizer}")
        known = curve.optimizer
        yield _strips(curve, columns, page)
        yield from _partings(curve, comparison, page)
    if (more := len(comparison.curves) - _SHOWN) > 0:
        yield Text(f"  {page.signs.ellipsis} {counted(more, 'more curve')}", style="dim")


def _title(curves: Sequence[ComparedCurve]) -> str:
    steps = _steps(curves)
    kinds = {curve.kind for curve in curves}
    words = [
        f"steps {steps[0]:,} to {steps[-1]:,} from left to right",
        *(["loss: summed over backward passes"] if "loss" in kinds else []),
        *(["norm: all gradients"] if "norm" in kinds else []),
    ]
    return "; ".join(words)


def _steps(curves: Sequence[ComparedCurve]) -> list[int]:
    """Return the steps of all curves."""
    steps = {step for curve in curves for side in curve.sides if side for step in side.steps}
    return sorted(steps)


def _width(page: Page) -> int:
    extreme = _EXTREME + _GAP if page.width >= _WIDE else 0
    return max(min(page.width - _LABEL - _COURSE - 2 * _GAP - extreme, _LONGEST), 8)


def _strips(curve: ComparedCurve, columns: Columns, page: Page) -> Table:
    drawn = [None if side is None else _cells(curve, side, columns) for side in curve.sides]
    known = tuple(cell for cells in drawn if cells is not None for cell in cells)
    scale = Scale.linear(known) if curve.kind == "loss" else Scale.decades([known])
    table = Table.grid(padding=(0, _GAP, 0, 0))
    table.add_column(width=_LABEL - _GAP, overflow="fold")
    table.add_column(width=columns.count, no_wrap=True)
    table.add_column(width=_COURSE, overflow="fold")
    table.add_column(style="dim")
    for place, (side, cells) in enumerate(zip(curve.sides[:_SIDES], drawn, strict=False)):
        row = [Text(_label(curve, place, page))]
        if side is None or cells is None:
            table.add_row(*row, Text("not measured", style="dim"))
            continue
        text = Text()
        for sign in strip(cells, scale, page.signs):
            text.append(sign, _STYLES.get(sign, "cyan" if place == 0 else "yellow"))
        row += [text, Text(_course(side, cells, page))]
        table.add_row(*row, *([Text(_extreme(curve, side, page))] if page.width >= _WIDE else []))
    if (more := len(curve.sides) - _SIDES) > 0:
        table.add_row(Text(f"  {page.signs.ellipsis} {more:,} more"))
    return table


def _cells(curve: ComparedCurve, side: SideCurve, columns: Columns) -> Cells:
    points = list(zip(side.steps, side.values, strict=True))
    return columns.mean(points) if curve.kind == "loss" else columns.largest(points)


def _label(curve: ComparedCurve, place: int, page: Page) -> str:
    """Return `  loss  A`; the name of the curve stands with the first side alone."""
    width = _LABEL - 2 * _GAP - 2
    return f"  {CURVE_NAMES[curve.kind] if place == 0 else '':{width}} {letter_of(place)}"


def _course(side: SideCurve, cells: Cells, page: Page) -> str:
    return course_text(course(list(zip(side.steps, side.values, strict=True)), cells), page.signs)


def _extreme(curve: ComparedCurve, side: SideCurve, page: Page) -> str:
    found = course(list(zip(side.steps, side.values, strict=True)), ())
    if found.first_nonfinite is not None:
        return f"not finite from step {found.first_nonfinite:,} on"
    extreme = found.lowest if curve.kind == "loss" else found.highest
    if extreme is None:
        return ""
    word = "lowest" if curve.kind == "loss" else "largest"
    return f"{word} {figure(extreme.value, page.signs)} at step {extreme.step:,}"


def _partings(curve: ComparedCurve, comparison: Comparison, page: Page) -> Iterator[Text]:
    told = [
        (letter_of(place), parting_text(curve, place, comparison, page.signs))
        for place in range(1, len(curve.sides))
    ]
    for letters, words in by_side(told):
        yield hanging(f"{letters}: {words}", page, indent=_GAP, further=_GAP)
