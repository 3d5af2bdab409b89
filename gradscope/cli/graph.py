"""`gradscope graph`."""

import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gradscope.analysis.view import DepthOption, ModuleOption
from gradscope.cli import options
from gradscope.cli.console import make_console, reserved_stdout
from gradscope.cli.errors import show_note
from gradscope.cli.options import check_file_arguments, given_arguments, is_recording, with_groups
from gradscope.cli.output import (
    WantedOutput,
    check_destinations,
    files_of_target,
    set_verbosity,
    wanted_output,
    write_text,
)
from gradscope.cli.report import StepOption, step_reports
from gradscope.cli.running import exit_if_broken, judged, planned_target, record_planned
from gradscope.errors import GradscopeError
from gradscope.frozen import dataclass
from gradscope.options.declaration import Argument, Option, Overrides
from gradscope.report.graph.formats import GraphFormat

if TYPE_CHECKING:
    from gradscope.analysis.report import Report
    from gradscope.check.options import PlannedTarget
    from gradscope.config import Configuration
    from gradscope.recording.records import Recording
    from gradscope.rules.settings import Settings

_MOST_DRAWN = 3000

GraphTargetArgument = Annotated[
    str,
    Argument(
        metavar="TARGET|RECORDING",
        help="path/file.py[:EXPR], package.module[:EXPR], or a .gradscope file written by --save.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphView:
    """Options that say which part of the graph is drawn."""

    module: ModuleOption = None
    depth: DepthOption = None
    max_nodes: Annotated[
        int | None,
        Option(
            min=1,
            metavar="N",
            help="Fold the deepest modules until at most N nodes are left. Default: 200 in dot, "
            "mermaid and svg.",
            panel="Report",
            show_default=False,
        ),
    ] = None
    unfold: Annotated[
        bool,
        Option(
            help="Draw each repeated block and turn of a loop in dot, mermaid and svg.",
            panel="Report",
        ),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOutput:
    """Output options of a graph."""

    output_format: Annotated[
        GraphFormat | None,
        Option(
            help="Graph format. Default: by the extension of the output file.",
            panel="Output",
            show_default=False,
        ),
    ] = None
    output_file: options.OutputFileOption = "-"
    open_page: options.OpenOption = False
    quiet: options.QuietOption = False
    verbose: options.VerboseOption = False
    color: options.ColorOption = "auto"


@with_groups
def graph(
    *,
    target: GraphTargetArgument,
    args: options.FileArguments = None,
    loading: options.LoadingOptions,
    step: StepOption = None,
    view: GraphView,
    output: GraphOutput,
) -> None:
    """Draw the autograd graph: modules, their operations, and the gradients between them."""
    set_verbosity(quiet=output.quiet, verbose=output.verbose)
    check_file_arguments(args)
    from gradscope.report.graph.formats import graph_format

    is_page = output.open_page and output.output_file == "-"
    form = graph_format(output.output_format or ("html" if is_page else None), output.output_file)
    page = _page(form, output.output_file, is_opened=output.open_page, subject=target)
    _check_folding(form, view.depth, view.max_nodes)
    from gradscope.config import read_configuration

    configuration = read_configuration()
    planned = None if is_recording(target) else _planned(target, configuration, loading, args)
    if planned is not None and step is not None:
        raise GradscopeError("`--step` needs a recording of a training run")
    read = (Path(target),) if planned is None else files_of_target(planned)
    file = output.output_file if page is None else page.file
    destination = check_destinations(file, None, force=False, inputs=read).report
    with reserved_stdout() as stdout:
        from gradscope.report.graph.part import GraphOptions
        from gradscope.report.graph.render import render_graph

        if planned is None:
            from gradscope.recording.store import load_recording

            report = _report_of(load_recording(target), target, step, configuration.settings)
        else:
            report = judged(record_planned(planned), configuration.settings)
        console = make_console(stdout if destination is None else io.StringIO(), output.color)
        wanted = GraphOptions(
            module=view.module,
            depth=view.depth,
            max_nodes=view.max_nodes,
            folds_repeats=not view.unfold,
        )
        rendered = render_graph(report, form, wanted, console)
        write_text(rendered.text, destination, stdout)
        if rendered.folded:
            show_note(rendered.folded)
    if page is not None:
        page.open(destination)
    exit_if_broken(report)


def _page(form: GraphFormat, file: str, *, is_opened: bool, subject: str) -> WantedOutput | None:
    """Return the destination of an HTML page; None for another format.

    Raises:
        GradscopeError: The page would be written to the terminal, or --open gets another format.
    """
    if form == "html":
        return wanted_output("html", file, is_opened=is_opened, subject=subject)
    if is_opened:
        raise GradscopeError(
            f"--open needs HTML, but the graph is written as {form}",
            help="remove one of them",
        )
    return None


def _report_of(
    recording: "Recording", name: str, step: int | None, settings: "Settings"
) -> "Report":
    """Return the report on a recording, or on one step of a training run.

    Raises:
        GradscopeError: The recording is of a training run, and `step` is missing or has no graph.
    """
    if step is None:
        report = judged(recording, settings)
        if report.training_run is not None:
            raise _stepless(recording, name)
        return report
    first, *others = step_reports(recording, step, settings)
    if others:
        show_note(f"step {step:,} has {1 + len(others)} backward passes: the first is drawn")
    return first


def _stepless(recording: "Recording", name: str) -> GradscopeError:
    """Return the error about a training run without a chosen step."""
    from gradscope.analysis.training_run import steps_text

    if not recording.captured_steps:
        return GradscopeError(
            f"`{name}` is a training run without a captured step",
            help="gradscope run captures the first steps and every 100th: see --tensor-every",
        )
    seen = steps_text(captured.step for captured in recording.captured_steps)
    return GradscopeError(
        f"`{name}` is a training run: choose a step with --step",
        cause=f"captured: {seen}",
        help=f"--step {recording.captured_steps[0].step}",
    )


def _planned(
    target: str,
    configuration: "Configuration",
    loading: Overrides,
    args: list[str] | None,
) -> "PlannedTarget":
    """Return how to run a target for its graph only."""
    overrides = {**loading, **given_arguments(args), "probe-steps": 0, "steps": 0}
    planned = planned_target(target, configuration, overrides)
    return replace(planned, trial=replace(planned.trial, micro_batches=None, keep_gradients="none"))


def _check_folding(form: GraphFormat, depth: int | None, max_nodes: int | None) -> None:
    """Check that the options for folding have an effect.

    Raises:
        GradscopeError: The text has a row a module and none a node, a picture can hold so many
            only, or the page opens each module.
    """
    if max_nodes is not None and form == "text":
        raise GradscopeError(
            "`--max-nodes` has no effect on `text`, which draws no nodes",
            help="--depth N folds modules; --output-format svg, dot, mermaid or json draws nodes",
        )
    if form == "svg" and max_nodes is not None and max_nodes > _MOST_DRAWN:
        raise GradscopeError(
            f"`svg` draws {_MOST_DRAWN:,} nodes at most",
            help="--module PATH draws one module; --output-format html opens modules one by one",
        )
    if form == "html" and (depth is not None or max_nodes is not None):
        raise GradscopeError(
            "`--depth` and `--max-nodes` have no effect on `html`, which opens modules one by one",
            help="--module PATH opens one module first",
        )
