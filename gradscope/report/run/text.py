"""The parts of text reports that only a training run has."""

from collections import Counter
from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gradscope.analysis.report import Report
from gradscope.analysis.run_optimizers import OptimizerRow
from gradscope.analysis.timeline import Pattern
from gradscope.analysis.training_run import TrainingRun
from gradscope.analysis.view import ViewOptions, shown_site
from gradscope.phrasing import counted
from gradscope.report.finding_phrasing import found_text, verdict_text
from gradscope.report.number_format import short_count
from gradscope.report.page import ASCII, Page
from gradscope.report.run.phrasing import (
    captured_steps_text,
    cost_text,
    heading,
    length_text,
    of_each_optimizer,
    optimizer_text,
    pattern_text,
    run_words,
)
from gradscope.report.text_findings import hanging
from gradscope.report.text_summary import grid

OPTIMIZERS_SHOWN = 4
_PATTERNS_SHOWN = 5


def run_header(report: Report, run: TrainingRun, page: Page) -> Iterator[RenderableType]:
    """Yield what was run: script, models, optimizers, steps and time."""
    title = Text("gradscope run", style="bold cyan")
    yield title.append(" ").append_text(page.text(report.target.name, "bold"))
    words = [
        length_text(run),
        _speed(run),
        page.spell(report.environment.device),
        f"torch {report.environment.torch}",
    ]
    yield grid(
        [
            *([("model", models)] if (models := _models(report, page)) else []),
            *(("optimizer", line) for line in _optimizers(run, page)),
            *([("ranks", Text(page.spell(report.job.title)))] if report.job else []),
            ("run", Text(page.signs.separator.join(word for word in words if word))),
            *([("watched", Text(cost))] if (cost := _cost(run)) else []),
            *(
                [("tensors", Text(captured_steps))]
                if (captured_steps := captured_steps_text(run))
                else []
            ),
        ]
    )
    if run.ending is not None:
        text = hanging(page.spell(run.ending.line), page)
        style = "bold red" if run.ending.is_trouble else "bold"
        text.stylize(style, 0, len(page.spell(run.ending.title)))
        yield text


def _cost(run: TrainingRun) -> str:
    return "" if run.cost is None else cost_text(run.cost)


def _speed(run: TrainingRun) -> str:
    """Return `83.3 steps/s`; empty where that tells nothing."""
    is_known = len(run.steps) > 1 and run.seconds > 0
    return f"{len(run.steps) / run.seconds:.3g} steps/s" if is_known else ""


def _models(report: Report, page: Page) -> Text:
    roots = [row for row in report.modules if row.parent is None and row.parameters]
    titles = Counter(
        f"{row.path} {row.class_name}" if row.path not in ("", row.class_name) else row.class_name
        for row in roots
        if row.class_name
    )
    names = [
        f"{title} {page.signs.times}{count}" if count > 1 else title
        for title, count in list(titles.items())[:OPTIMIZERS_SHOWN]
    ]
    if (more := len(titles) - OPTIMIZERS_SHOWN) > 0:
        names.append(f"{more:,} more")
    summary = report.summary
    size = f"{short_count(summary.numel)} elements in {counted(summary.parameters, 'parameter')}"
    frozen = f", {summary.frozen:,} frozen" if summary.frozen else ""
    text = page.text(", ".join(names))
    return text.append(f"{': ' if names else ''}{size}{frozen}") if summary.parameters else text


def _optimizers(run: TrainingRun, page: Page) -> Iterator[Text]:
    for row in run.optimizers[:OPTIMIZERS_SHOWN]:
        text = page.text(optimizer_text(row, run))
        if row.site is not None:
            text.append(f", {page.spell(shown_site(row.site, page.root))}", style="dim")
        yield text.append(_share_of(row, run))
    if (more := len(run.optimizers) - OPTIMIZERS_SHOWN) > 0:
        steps = sum(row.steps for row in run.optimizers[OPTIMIZERS_SHOWN:])
        yield Text(f"{more:,} more with {counted(steps, 'step')} together", style="dim")


def _share_of(row: OptimizerRow, run: TrainingRun) -> str:
    """Return how many steps an optimizer made on what, where it is not the only one."""
    made = f", made {row.made:,} times" if row.made > 1 else ""
    if len(run.optimizers) == 1 and row.steps:
        return made
    held = "" if row.parameters is None else f" on {counted(row.parameters, 'parameter')}"
    return f"{made}: {counted(row.steps, 'step') if row.steps else 'no step'}{held}"


def steps_section(run: TrainingRun, page: Page) -> Iterator[RenderableType]:
    """Yield what steps are made of: what is usual, and what is not."""
    if not run.patterns:
        return
    yield Text("Steps", style="bold").append(
        "  events before each step, and their frequency", "not bold dim"
    )
    drawn = of_each_optimizer(run)
    shown = [item for turn, item in enumerate(drawn) if turn < OPTIMIZERS_SHOWN or item[0] is None]
    for position, of_one in shown:
        is_headed = len(drawn) > 1 or position is None
        if is_headed:
            yield Text("  ").append_text(page.text(heading(run, position)))
        yield _patterns(of_one, page, indent=4 if is_headed else 2)
        if (more := len(of_one) - _PATTERNS_SHOWN) > 0:
            count = sum(pattern.count for pattern in of_one[_PATTERNS_SHOWN:])
            words = f"{counted(count, 'step')} in {more:,} more ways: --output-format json"
            yield Text(f"  {page.signs.ellipsis} {words}", style="dim")
    if (more := len(drawn) - len(shown)) > 0:
        yield Text(f"  {page.signs.ellipsis} of {more:,} more optimizers", style="dim")


def _patterns(drawn: list[Pattern], page: Page, indent: int) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True, min_width=indent)
    table.add_column(overflow="fold")
    for pattern in drawn[:_PATTERNS_SHOWN]:
        text = page.text(pattern_text(pattern, page.signs))
        if not pattern.is_typical:
            position = shown_site(pattern.site, page.root)
            at = f" at {page.spell(position)}" if position else ""
            text.stylize("magenta")
            text.append(f"  first step {pattern.first:,}{at}", style="dim not magenta")
        table.add_row(f"{' ' * indent}{pattern.count:,} {page.signs.times}", text)
    return table


def run_closing(report: Report, run: TrainingRun, view: ViewOptions, page: Page) -> Text:
    """Return the last line: findings, steps, and where the loss went."""
    found = found_text(report)
    words = [
        *([f"{found} above"] if found else []),
        *run_words(run, page.signs),
    ]
    text = Text(f"{', '.join(words)}.", overflow="fold")
    return text.append(
        " Use --save FILE to keep the recording." if view.can_save else "", style="dim"
    )


_SHOWN = 5


def pattern_lines(run: TrainingRun) -> Iterator[str]:
    """Yield the steps' patterns, a line each, with how many steps look so."""
    for position, drawn in of_each_optimizer(run):
        of = heading(run, position)
        for pattern in drawn[:_SHOWN]:
            first = "" if pattern.is_typical else f", first {pattern.first:,}"
            count = "" if position is None else f" ({counted(pattern.count, 'step')}{first})"
            yield f"{of}: {pattern_text(pattern, ASCII)}{count}"
        if (more := len(drawn) - _SHOWN) > 0:
            yield f"{of}: {counted(more, 'more pattern')}"


def run_line(report: Report, run: TrainingRun) -> str:
    """Return the verdict, and how the run went."""
    words = [counted(report.summary.parameters, "parameter"), *run_words(run, ASCII)]
    verdict = verdict_text(report)
    return f"{f'{verdict} ' if verdict else ''}{', '.join(words)}."
