"""The command line: one module a command, all of them listed here."""

import sys
from typing import Annotated

import typer

from gradscope import __version__
from gradscope.cli.check import check
from gradscope.cli.clip_report import clip_report
from gradscope.cli.compare import compare
from gradscope.cli.config import config
from gradscope.cli.errors import BugReport, show_error
from gradscope.cli.export import export
from gradscope.cli.graph import graph
from gradscope.cli.inspect import inspect
from gradscope.cli.report import report
from gradscope.cli.rule import rule
from gradscope.cli.run import PlannedRun, RunPlanned, run
from gradscope.cli.streams import open_streams, seal_stdout
from gradscope.errors import ExitCode, GradscopeError

COMMANDS = (
    ("inspect", inspect, True),
    ("check", check, False),
    ("clip-report", clip_report, False),
    ("graph", graph, True),
    ("report", report, True),
    ("compare", compare, True),
    ("export", export, True),
    ("rule", rule, False),
    ("config", config, False),
)
"""Name, function, and whether it shows its help when it is called without arguments."""

app = typer.Typer(
    name="gradscope",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _command, _needs_arguments in COMMANDS:
    app.command(_name, no_args_is_help=_needs_arguments)(_command)
# What follows the script is its own, options too.
app.command("run", no_args_is_help=True, context_settings={"allow_interspersed_args": False})(run)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gradscope {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("-V", "--version", callback=_show_version, is_eager=True, help="The version."),
    ] = False,
) -> None:
    """The debugger for gradients in PyTorch."""


def main() -> None:
    """Run the command line and exit."""
    open_streams()
    show_exception = sys.excepthook
    planned = _parsed()
    sys.excepthook = show_exception  # typer has put its own in the place
    from gradscope.cli.launching import launch

    launch(planned)


def _parsed() -> PlannedRun:
    """Run the command line, and exit unless it leaves a script to be run."""
    is_left = True
    with BugReport():
        try:
            app()
        except RunPlanned as parsed:
            is_left = False
            return parsed.run
        except GradscopeError as error:
            show_error(error)
            sys.exit(ExitCode.CANNOT_JUDGE)
        finally:
            if is_left:
                seal_stdout()
    raise AssertionError  # app() exits
