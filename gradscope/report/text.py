"""The text report: what `gradscope inspect` prints."""

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

from gradscope.analysis.report import Report
from gradscope.analysis.step_view import first_step
from gradscope.analysis.training_run import TrainingRun
from gradscope.analysis.view import ViewOptions
from gradscope.phrasing import counted
from gradscope.report.accumulation import accumulation_section
from gradscope.report.finding_phrasing import found_text
from gradscope.report.number_format import figure
from gradscope.report.page import Page, Trimmed
from gradscope.report.run.ranks import ranks_section
from gradscope.report.run.text import run_closing, run_header, steps_section
from gradscope.report.run.text_strips import strips_sections
from gradscope.report.text_findings import findings_section, unjudged_section
from gradscope.report.text_modules import module_section
from gradscope.report.text_parameters import parameter_section
from gradscope.report.text_summary import header, probe_line, summary_table
from gradscope.report.text_tensors import tensor_section

_SKIPPED_SHOWN = 5


def render_text(report: Report, view: ViewOptions, console: Console) -> None:
    """Print the report on a console, which decides width, colour and characters."""
    page = Page.of(console, report.target.root)
    for block in _blocks(report, view, page):
        for part in block:
            console.print(Trimmed(part), end="")
        if block:
            console.print()
    console.print(Trimmed(_closing(report, view, page)), end="")


def _blocks(report: Report, view: ViewOptions, page: Page) -> Iterator[list[RenderableType]]:
    run = report.training_run
    yield list(header(report, page) if run is None else run_header(report, run, page))
    yield list(findings_section(report, page))
    if run is not None:
        yield from _of_run(report, run, view, page)
    elif _is_measured(report):
        yield from _measured(report, view, page)
    yield list(_skipped(report, page))
    yield list(unjudged_section(report, page))


def _measured(report: Report, view: ViewOptions, page: Page) -> Iterator[list[RenderableType]]:
    scope = [Text("of the whole model:", style="dim")] if view.module else []
    yield [*scope, summary_table(report, page)]
    yield list(accumulation_section(report, page))
    yield list(module_section(report, view, page))
    lists: list[list[RenderableType]] = [
        list(parameter_section(report, view, page)),
        list(tensor_section(report, view, page)),
    ]
    # What is non-finite began in a tensor.
    yield from reversed(lists) if report.summary.nonfinite_tensors else lists
    yield list(probe_line(report, page))


def _of_run(
    report: Report, run: TrainingRun, view: ViewOptions, page: Page
) -> Iterator[list[RenderableType]]:
    yield list(ranks_section(report, page))
    yield list(steps_section(run, page))
    yield from strips_sections(report, run, view, page)
    yield list(parameter_section(report, view, page))


def _is_measured(report: Report) -> bool:
    """Whether there was a backward, which an exception may have ended."""
    view = first_step(report.recording)
    return bool(view.parameter_stats or view.tensor_stats)


def _skipped(report: Report, page: Page) -> Iterator[RenderableType]:
    if not report.skipped:
        return
    yield Text("Not measured", style="bold")
    for item in report.skipped[:_SKIPPED_SHOWN]:
        yield Padding(page.text(f"{item.what}: {item.reason}"), (0, 0, 0, 2))
    if (more := len(report.skipped) - _SKIPPED_SHOWN) > 0:
        yield Text(f"  {page.signs.ellipsis} {more:,} more: --output-format json", style="dim")


def _closing(report: Report, view: ViewOptions, page: Page) -> Text:
    if report.training_run is not None:
        return run_closing(report, report.training_run, view, page)
    summary = report.summary
    found = found_text(report)
    counts = [
        *([f"{found} above"] if found else []),
        counted(summary.parameters, "parameter"),
        counted(summary.tensors, "tensor"),
        f"global gradient norm {figure(summary.grad_norm, page.signs)}",
    ]
    tips = []
    if not _is_measured(report):
        counts[-1] = "no gradient measured"
    elif view.tensors != "all":
        tips.append("Use --tensors all to list every tensor.")
    if view.can_save:
        tips.append("Use --save FILE to keep the recording.")
    scope = " in the whole model" if view.module else ""
    text = Text(f"{', '.join(counts)}{scope}.", overflow="fold")
    return text.append("".join(f" {tip}" for tip in tips), style="dim")
