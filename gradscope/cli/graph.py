"""`gradscope graph`."""

import io
from pathlib import Path
from typing import Annotated, Literal

import typer

from gradscope.cli import options
from gradscope.cli.console import make_console
from gradscope.cli.errors import show_note
from gradscope.cli.inspect import check_file_arguments
from gradscope.cli.option_groups import with_groups
from gradscope.cli.output import check_destinations, files_of_target, set_verbosity, write_text
from gradscope.cli.running import exit_if_broken, record_target, typed_command
from gradscope.cli.streams import reserved_stdout
from gradscope.errors import GradscopeError

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
    read = (Path(target),) if _is_recording(target) else files_of_target(target)
    destination = check_destinations(output_file, None, force=False, inputs=read).report
    _check_cap(output_format, max_nodes)
    with reserved_stdout() as stdout:
        from gradscope.report.graph_part import GraphOptions
        from gradscope.report.graph_render import render_graph
        from gradscope.report.model import Report

        if _is_recording(target):
            from gradscope.recording.store import load_recording

            recording = load_recording(target)
        else:
            from gradscope.target.options import Trial

            trial = Trial(probe_steps=0)
            recording = record_target(target, loading.chosen(args), trial, command=typed_command())
        report = Report.from_recording(recording)
        console = make_console(stdout if destination is None else io.StringIO(), color)
        wanted = GraphOptions(module=module, depth=depth, max_nodes=max_nodes)
        rendered = render_graph(report, output_format, wanted, console)
        write_text(rendered.text, destination, stdout)
        if rendered.folded:
            show_note(rendered.folded)
    exit_if_broken(report)


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
