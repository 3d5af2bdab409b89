"""The text report: what `gradscope inspect` prints."""

from collections.abc import Iterable, Iterator

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradscope.analysis.report import Report
from gradscope.analysis.step_view import first_step
from gradscope.analysis.training_run import TrainingRun
from gradscope.analysis.view import ViewOptions
from gradscope.phrasing import counted
from gradscope.report.accumulation import accumulation_section
from gradscope.report.finding_phrasing import SYNTHETIC_LOSS, found_text, training_text
from gradscope.report.number_format import figure
from gradscope.report.page import Page, Trimmed
from gradscope.report.run.text import run_closing, run_header, steps_section
from gradscope.report.run.text_strips import strips_sections
from gradscope.report.text_findings import findings_section, unjudged_section
from gradscope.report.text_modules import module_section
from gradscope.report.text_parameters import parameter_section
from gradscope.report.text_tensors import tensor_section


def header(report: Report, page: Page) -> Iterator[RenderableType]:
    """Yield what was inspected, and a warning where the loss is made up."""
    target = report.target
    title = Text("gradscope", style="bold cyan")
    yield title.append(" ").append_text(page.text(target.name, "bold"))
    loss = f"{figure(report.summary.loss, page.signs)} from {page.spell(target.loss)}"
    seed = "" if target.seed is None else f"seed {target.seed}"
    run = [seed, page.spell(report.environment.device), f"torch {report.environment.torch}"]
    yield grid(
        [
            ("model", Text(f"{page.spell(target.model)} in {target.mode} mode")),
            ("batch", page.text(target.batch)),
            ("loss", Text(loss)),
            *([("optimizer", page.text(target.optimizer))] if target.optimizer else []),
            *([("trained", _training(report, page))] if report.training else []),
            ("run", Text(page.signs.separator.join(word for word in run if word))),
        ]
    )
    if target.synthetic_loss:
        warning = Text("warning: ", style="bold red")
        yield warning.append(
            f"{SYNTHETIC_LOSS}. --loss, or compute_loss(model, batch) in the file, names the "
            "real one.",
            style="not bold default",
        )


def summary_table(report: Report, page: Page) -> Table:
    """Return the report in numbers, a line a subject."""
    return grid(
        [
            ("parameters", _parameters(report)),
            ("gradient", _gradient(report, page)),
            ("tensors", _tensors(report)),
            ("graph", _graph(report)),
        ]
    )


def probe_line(report: Report, page: Page) -> Iterator[Text]:
    """Yield what the probing steps did to loss and norm."""
    if not report.probes:
        return
    last, signs = report.probes[-1], page.signs
    article = "" if report.target.optimizer else "an assumed "
    optimizer = f" of {article}{page.spell(last.optimizer)}" if last.optimizer else ""
    changes = [
        f"{name} {figure(before, signs)} {signs.arrow} {figure(after, signs)}"
        for name, before, after in (
            ("loss", report.summary.loss, last.loss),
            ("norm", report.summary.grad_norm, last.grad_norm),
        )
    ]
    steps = counted(len(report.probes), "probing step")
    yield Text(f"after {steps}{optimizer}: {', '.join(changes)}", overflow="fold")


def _training(report: Report, page: Page) -> Text:
    signs = page.signs
    return page.text(training_text(report, signs.arrow, lambda value: figure(value, signs)))


def _parameters(report: Report) -> Text:
    summary = report.summary
    text = Text(f"{counted(summary.numel, 'element')} in {counted(summary.parameters, 'tensor')}: ")
    reached = f"{summary.reached:,} reached"
    is_whole = summary.reached == summary.parameters
    text.append(f"all {reached}" if is_whole and summary.parameters else reached)
    for count, what, style in (
        (summary.zero, "zero", "magenta"),
        (summary.none, "without gradient", "magenta"),
        (summary.unknown, "not measured", "dim"),
        (summary.frozen, "frozen", "dim"),
    ):
        if count:
            text.append(", ").append(f"{count:,} {what}", style=style)
    return text


def _gradient(report: Report, page: Page) -> Text:
    summary = report.summary
    text = Text(f"global norm {figure(summary.grad_norm, page.signs)}")
    if not (summary.nonfinite_parameters or summary.nonfinite_tensors):
        return text.append(", all finite") if summary.grad_norm is not None else text
    broken = (
        f"non-finite in {counted(summary.nonfinite_parameters, 'parameter')} "
        f"and {counted(summary.nonfinite_tensors, 'tensor')}"
    )
    return text.append(", ").append(broken, style="bold red")


def _tensors(report: Report) -> Text:
    summary = report.summary
    words = [f"{summary.tensors:,} measured"]
    if summary.unmeasured_tensors:
        words.append(f"{summary.unmeasured_tensors:,} not measured")
    if summary.views:
        one, many = "is a view and shares its", "are views and share their"
        verb = one if summary.views == 1 else many
        words.append(f"{summary.views:,} more {verb} tensor's gradient")
    return Text(", ".join(words))


def _graph(report: Report) -> Text:
    graph = report.graph
    words = [counted(graph.nodes, "node"), counted(graph.edges, "edge"), f"depth {graph.depth:,}"]
    if graph.widest is not None:
        words.append(
            f"widest at depth {graph.widest.depth:,} ({graph.widest.nodes:,} side by side)"
        )
    return Text(", ".join(words))


def grid(lines: Iterable[tuple[str, Text]]) -> Table:
    """Return lines that begin with what each is about."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True, min_width=10)
    grid.add_column(overflow="fold")
    for name, text in lines:
        grid.add_row(name, text)
    return grid


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
    yield Text("Not seen", style="bold")
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
        tips.append("--tensors all lists every tensor.")
    if view.can_save:
        tips.append("--save FILE keeps the recording.")
    scope = " in the whole model" if view.module else ""
    text = Text(f"{', '.join(counts)}{scope}.", overflow="fold")
    return text.append("".join(f" {tip}" for tip in tips), style="dim")
