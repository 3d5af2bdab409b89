"""`gradscope graph`."""

import io
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gradscope.cli import options
from gradscope.cli.arguments import check_file_arguments, given_arguments
from gradscope.cli.console import make_console
from gradscope.cli.errors import show_note
from gradscope.cli.option_groups import with_groups
from gradscope.cli.output import check_destinations, files_of_target, set_verbosity, write_text
from gradscope.cli.running import exit_if_broken, planned_target, record_planned
from gradscope.cli.streams import reserved_stdout
from gradscope.errors import GradscopeError

if TYPE_CHECKING:
    from gradscope.gate.options import PlannedTarget

GraphTargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="TARGET|RECORDING",
        help="path/file.py[:EXPR], package.module[:EXPR], or a .gradscope file that --save has "
        "written.",
        show_default=False,
    ),
]
GraphFormatOption = Annotated[
    Literal["text", "dot", "mermaid", "json"],
    typer.Option("--output-format", help="How to write the graph.", rich_help_panel="Output"),
]
MaxNodesOption = Annotated[
    int | None,
    typer.Option(
        "--max-nodes",
        min=1,
        metavar="N",
        help="Fold the deepest modules until no more nodes are left; 200 in dot and mermaid.",
        rich_help_panel="Report",
        show_default=False,
    ),
]


@with_groups
def graph(  # noqa: PLR0913 - the signature is the list of options
    target: GraphTargetArgument,
    loading: options.TargetGroup,
    args: options.FileArguments = None,
    module: options.ModuleOption = None,
    depth: options.DepthOption = None,
    max_nodes: MaxNodesOption = None,
    output_format: GraphFormatOption = "text",
    output_file: options.OutputFileOption = "-",
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
    color: options.ColorOption = "auto",
) -> None:
    """Show the autograd graph: modules, their operations, and the gradients between them."""
    set_verbosity(quiet=quiet, verbose=verbose)
    check_file_arguments(args)
    planned = None if _is_recording(target) else _planned(target, loading, args)
    read = (Path(target),) if planned is None else files_of_target(planned)
    destination = check_destinations(output_file, None, force=False, inputs=read).report
    _check_cap(output_format, max_nodes)
    with reserved_stdout() as stdout:
        from gradscope.report.graph.part import GraphOptions
        from gradscope.report.graph.render import render_graph
        from gradscope.report.model import Report

        if planned is None:
            from gradscope.recording.store import load_recording

            recording = load_recording(target)
        else:
            recording = record_planned(planned)
        report = Report.from_recording(recording)
        if report.training_run is not None:
            raise GradscopeError(
                f"`{target}` is of a training run, which keeps no graph",
                help="gradscope report shows it; gradscope graph takes a model, as inspect does",
            )
        console = make_console(stdout if destination is None else io.StringIO(), color)
        wanted = GraphOptions(module=module, depth=depth, max_nodes=max_nodes)
        rendered = render_graph(report, output_format, wanted, console)
        write_text(rendered.text, destination, stdout)
        if rendered.folded:
            show_note(rendered.folded)
    exit_if_broken(report)


def _planned(target: str, loading: options.TargetGroup, args: list[str] | None) -> "PlannedTarget":
    """Return how to run a target for its graph alone."""
    from gradscope.configuration import read_configuration

    overrides = {**loading.given(), **given_arguments(args), "probe-steps": 0, "steps": 0}
    planned = planned_target(target, read_configuration(), overrides)
    return replace(planned, trial=replace(planned.trial, micro_batches=None))


def _check_cap(output_format: str, max_nodes: int | None) -> None:
    """Make sure that there are nodes to be capped.

    Raises:
        GradscopeError: The text has a row a module, and none a node.
    """
    if max_nodes is not None and output_format == "text":
        raise GradscopeError(
            "`--max-nodes` caps a drawing, and `text` draws no nodes",
            help="--depth N folds modules, --output-format dot, mermaid or json draws nodes",
        )


def _is_recording(target: str) -> bool:
    return target.endswith(".gradscope")
