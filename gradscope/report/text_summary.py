"""Header, summary and probes of the text report."""

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gradscope.analysis.report import Report
from gradscope.phrasing import counted
from gradscope.report.finding_phrasing import SYNTHETIC_LOSS, training_text
from gradscope.report.number_format import figure
from gradscope.report.page import Page


def header(report: Report, page: Page) -> Iterator[RenderableType]:
    """Yield what was inspected, and a warning where the loss is a placeholder."""
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
            f"{SYNTHETIC_LOSS}. Use --loss, or define compute_loss(model, batch) in the file.",
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
