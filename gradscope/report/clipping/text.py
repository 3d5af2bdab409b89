"""The text of `gradscope clip-report`."""

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from gradscope.analysis.clip_sections import Clipping, Section
from gradscope.analysis.columns import Columns
from gradscope.analysis.report import Report
from gradscope.analysis.view import ViewOptions, shown_site
from gradscope.phrasing import counted
from gradscope.report.bars import BAR
from gradscope.report.clipping.text_tables import (
    contribution_tables,
    histogram_table,
    method_table,
    spread_table,
    sweep_table,
)
from gradscope.report.clipping.words import (
    advice_text,
    cut_text,
    direction_text,
    exchange_text,
    headline,
    measured_text,
    norm_name,
    rate_text,
    remarks,
)
from gradscope.report.figures import figure
from gradscope.report.finding_words import found_text
from gradscope.report.page import Page, Trimmed
from gradscope.report.run.strips import Scale, strip
from gradscope.report.run.text import run_header
from gradscope.report.text_findings import findings_section, hanging
from gradscope.report.text_summary import grid, header

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
            _title("Methods", "side by side, on the same gradients"),
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
        place = shown_site(section.site, page.root)
        note = "the limit that is advised" if section.is_advised else page.spell(place)
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
    yield _title("Limits", "what a largest norm would cut of these")
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
            words.append(f"{len(section.cut):,} cut by {section.words}")
        if section.advice is not None:
            words.append(f"advised max_norm {section.advice.limit:g}")
    return page.text(f"{', '.join(words)}.")
