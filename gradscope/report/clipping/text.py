"""The text of `gradscope clip-report`."""

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from gradscope.analysis.clipping.clipping import Clipping
from gradscope.analysis.clipping.contributions import Contribution
from gradscope.analysis.clipping.sections import Section
from gradscope.analysis.columns import Columns
from gradscope.analysis.report import Report
from gradscope.analysis.view import ViewOptions, shown_site
from gradscope.phrasing import counted
from gradscope.report.bars import BAR
from gradscope.report.clipping.phrasing import (
    METHODS,
    advice_text,
    cut_text,
    direction_text,
    exchange_text,
    headline,
    measured_text,
    norm_name,
    percent,
    rate_text,
    remarks,
    rest_text,
    spread_words,
)
from gradscope.report.finding_phrasing import found_text
from gradscope.report.number_format import figure
from gradscope.report.page import Page, Trimmed
from gradscope.report.run.text import run_header
from gradscope.report.run.text_strips import Scale, strip
from gradscope.report.text_findings import findings_section, hanging
from gradscope.report.text_summary import grid, header

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
    table.add_column("steps clipped", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("mean coefficient", justify="right")
    table.add_column("of clipped steps", justify="right")
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
    title = Text("Contributions to the norm", style="bold")
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
    table.add_column("max", justify="right", no_wrap=True)
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
    for title in ("limit", "steps clipped", "norm after", "coefficient", "cosine", "min cosine"):
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


_INDENT = 2
_STRIP = 60


def render_clipping(
    report: Report, clipping: Clipping, view: ViewOptions, console: Console
) -> None:
    """Print the report on a console, which decides width, colour and characters."""
    page = Page.of(console, report.target.root)
    for block in _blocks(report, clipping, view, page):
        for part in block:
            console.print(Trimmed(part), end="")
        if block:
            console.print()
    console.print(Trimmed(_closing(report, clipping, page)), end="")


def _blocks(
    report: Report, clipping: Clipping, view: ViewOptions, page: Page
) -> Iterator[list[RenderableType]]:
    run = report.training_run
    _, *lines = header(report, page) if run is None else run_header(report, run, page)
    title = Text("gradscope clip-report", style="bold cyan")
    title.append(" ").append_text(page.text(report.target.name, "bold"))
    yield [title, *lines, *_measured(clipping)]
    yield list(findings_section(report, page))
    for section in clipping.sections:
        yield from _section(section, view, page)


def _measured(clipping: Clipping) -> Iterator[RenderableType]:
    """Yield which gradients of a target were measured."""
    if clipping.trial is not None:
        text = measured_text(clipping.trial, clipping.sections[0])
        yield grid([("measured", Text(text, overflow="fold"))])


def _section(section: Section, view: ViewOptions, page: Page) -> Iterator[list[RenderableType]]:
    yield list(_clip(section, page))
    yield list(_norms(section, page))
    yield list(_limits(section, page))
    yield list(contribution_tables(section, view, page))
    if section.methods:
        yield [
            _title("Methods", "compared on the same gradients"),
            method_table(section, page),
        ]


def _title(title: str, note: str = "") -> Text:
    text = Text(title, style="bold", overflow="fold")
    return text.append(f"  {note}", "not bold dim") if note else text


def _clip(section: Section, page: Page) -> Iterator[RenderableType]:
    """Yield what clips, how often and how far."""
    if section.method is None and not section.is_advised:
        whose = page.spell(section.words)
        yield _title("Clip", f"nothing clips the gradients of {whose}")
    else:
        position = shown_site(section.site, page.root)
        note = "the recommended limit" if section.is_advised else page.spell(position)
        yield _title(page.spell(section.words), note)
    lines = [
        ("cut", cut_text(section, page.signs) if section.method else ""),
        ("direction", direction_text(section, page.signs)),
        ("rate", rate_text(section, page.signs)),
    ]
    table = _lines(lines, page)
    for check in section.checks:
        mark, style = ("ok", "not dim green") if check.is_right else ("not", "not dim bold magenta")
        table.add_row(Text(f"  {mark}", style), page.text(check.words))
    yield table
    for text in (headline(section), *remarks(section)):
        if text:
            line = hanging(page.spell(text.replace("`", "")), page, indent=_INDENT)
            line.stylize("magenta")
            yield line


def _lines(lines: Sequence[tuple[str, str]], page: Page) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True, min_width=12)
    table.add_column(overflow="fold")
    for name, words in lines:
        if words:
            table.add_row(f"  {name}", page.text(words))
    return table


def _norms(section: Section, page: Page) -> Iterator[RenderableType]:
    """Yield how the norms before clipping spread, and how they go over time."""
    if section.norms is None:
        return
    name = norm_name(section).capitalize()
    yield _title(name, f"before clipping, of {counted(section.norms.count, 'step')}")
    if section.norms.count == 1:
        yield Text(f"  {figure(section.norms.least, page.signs)}")
        return
    yield spread_table(section, page)
    yield Text("")
    yield histogram_table(section, page)
    if len(section.points) > 2:
        yield _over_time(section, page)


def _over_time(section: Section, page: Page) -> Table:
    """Return strips of the norm before, and of what is left of it."""
    steps = list(dict.fromkeys(point.step for point in section.points))
    columns = Columns(steps, min(_STRIP, max(page.width - 40, 8)))
    norms = columns.largest((point.step, point.norm) for point in section.points)
    left = columns.largest((point.step, point.norm * point.coefficient) for point in section.points)
    scale = Scale.decades([norms, left])
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True, min_width=12)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", style="dim")
    ends = (section.points[0].norm, section.points[-1].norm)
    words = f" {page.signs.arrow} ".join(figure(value, page.signs) for value in ends)
    table.add_row("  over time", Text(strip(norms, scale, page.signs), BAR), words)
    if section.cut:
        table.add_row("  afterwards", Text(strip(left, scale, page.signs), BAR), "")
    return table


def _limits(section: Section, page: Page) -> Iterator[RenderableType]:
    if not section.sweep:
        return
    yield _title("Limits", "share of these steps that each limit would clip")
    yield sweep_table(section, page)
    if section.advice is not None:
        exchange = exchange_text(section, page.signs)
        for text in (*advice_text(section.advice, page.signs), exchange):
            if text:
                yield hanging(page.spell(text), page, indent=_INDENT)


def _closing(report: Report, clipping: Clipping, page: Page) -> Text:
    found = found_text(report)
    words = [f"{found} above"] if found else []
    for section in clipping.sections[:1]:
        words.append(f"{counted(len(section.points), 'gradient')} measured")
        if section.method is not None:
            words.append(f"{len(section.cut):,} clipped by {section.words}")
        if section.advice is not None:
            words.append(f"recommended max_norm {section.advice.limit:g}")
    return page.text(f"{', '.join(words)}.")
