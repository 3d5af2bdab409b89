"""The tables of the text report on clipping."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gradscope.analysis.clip_sections import Section
from gradscope.analysis.trial_clipping import Contribution
from gradscope.analysis.view import ViewOptions
from gradscope.report.bars import BAR
from gradscope.report.clipping.words import METHODS, percent, rest_text, spread_words
from gradscope.report.figures import figure
from gradscope.report.page import Page

_BAR = 30
_SHORT = 16
_FULL_MODULES = 8
_WIDE = 84
"""Columns of a page from which on there is room for bars beside numbers."""
_NARROW = 68
_LEFT_OUT = ("25 %", "75 %", "95 %")
"""Quantiles that a narrower page has no room for."""
_NUMBERS = 52
"""Columns beside the names of modules and parameters."""


def _table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")


def linear_bar(share: float, width: int, page: Page) -> Text:
    """Return a bar of a share of the width; at least a trace of what is not nothing."""
    steps = len(page.signs.parts)
    eighths = max(round(share * width * steps), 1 if share > 0 else 0)
    whole, part = divmod(eighths, steps)
    return Text(page.signs.full * whole + (page.signs.parts[part] if part else ""), style=BAR)


def _short_bar(share: float, page: Page) -> Text:
    return linear_bar(share, _SHORT, page) if page.width >= _WIDE else Text()


def spread_table(section: Section, page: Page) -> Table:
    """Return the quantiles of the norms."""
    assert section.norms is not None
    words = list(spread_words(section.norms, page.signs))
    if page.width < _NARROW:
        words = [(name, value) for name, value in words if name not in _LEFT_OUT]
    table = _table()
    table.add_column("", width=0)
    for name, _ in words:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row("", *(value for _, value in words))
    return table


def histogram_table(section: Section, page: Page) -> Table:
    """Return how many norms lie in each bin, and where the limit lies between them."""
    most = max((one.count for one in section.bins), default=0)
    limit = section.limit if section.method in ("norm", "per-tensor") else None
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True, style="dim", min_width=12)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for one in section.bins:
        ends = "0" if not one.high else f"{one.low:g}{page.signs.ellipsis}{one.high:g}"
        row = linear_bar(one.count / most if most else 0.0, _BAR, page)
        if limit is not None and one.low <= limit < one.high:
            row.append(f"  {page.signs.arrow} limit {limit:g}", "magenta")
        table.add_row(ends, f"{one.count:,}", row)
    return table


def sweep_table(section: Section, page: Page) -> Table:
    """Return what some limits would cut."""
    table = _table()
    table.add_column("", width=0)
    table.add_column("max_norm", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("steps cut", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("mean coefficient", justify="right")
    table.add_column("of those cut", justify="right")
    for row in section.sweep:
        table.add_row(
            "",
            f"{row.limit:g}",
            Text(row.mark, "magenta"),
            percent(row.share),
            _short_bar(row.share, page),
            figure(row.mean, page.signs),
            figure(row.mean_cut, page.signs),
            style="bold" if row.mark else "",
        )
    return table


def contribution_tables(
    section: Section, view: ViewOptions, page: Page
) -> Iterator[RenderableType]:
    """Yield who makes the norm: modules, then parameters."""
    found = section.contributions
    if not found.parameters:
        return
    title = Text("Who makes the norm", style="bold")
    yield title.append(f"  mean share of the {found.power}", "not bold dim")
    if len(found.modules) > 1 and len(found.modules) < len(found.parameters):
        yield _contributions("module", found.modules, _FULL_MODULES, page)
        yield Text("")
    yield _contributions("parameter", found.parameters, 2 * view.top, page)


def _contributions(kind: str, rows: Sequence[Contribution], shown: int, page: Page) -> Table:
    shown_rows, hidden = rows[:shown], rows[shown:]
    has_after = any(row.after is not None for row in rows)
    table = _table()
    table.add_column("", width=0)
    table.add_column(kind, overflow="fold")
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("at most", justify="right", no_wrap=True)
    table.add_column("median norm", justify="right", no_wrap=True)
    if has_after:
        table.add_column("after", justify="right", no_wrap=True)
    for row in shown_rows:
        cells: list[str | Text] = [
            "",
            page.path(row.name or "the model itself", max(page.width - _NUMBERS, _SHORT)),
            percent(row.share),
            _short_bar(row.share, page),
            percent(row.largest),
            figure(row.before, page.signs),
        ]
        table.add_row(*cells, *([figure(row.after, page.signs)] if has_after else []))
    if hidden:
        table.add_row("", Text(f"{page.signs.ellipsis} {rest_text(tuple(hidden))}", "dim"))
    return table


def method_table(section: Section, page: Page) -> Table:
    """Return what the methods do to the same gradients."""
    table = _table()
    table.add_column("", width=0)
    table.add_column("method", no_wrap=True)
    for title in ("limit", "steps cut", "norm after", "coefficient", "cosine", "at the least"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in section.methods:
        table.add_row(
            "",
            Text(METHODS[row.method], "bold" if row.is_asked else ""),
            f"{row.limit:g}",
            percent(row.share),
            figure(row.after, page.signs),
            figure(row.coefficient, page.signs),
            figure(row.cosine, page.signs),
            figure(row.worst, page.signs),
        )
    return table
