"""The command line as typer parses it: one module a command, all of them listed here."""

import inspect as inspection
import typing
from collections.abc import Callable
from typing import Annotated

import typer

from gradscope.cli.check import check
from gradscope.cli.clip_report import clip_report
from gradscope.cli.compare import compare
from gradscope.cli.config import config
from gradscope.cli.export import export
from gradscope.cli.fix import fix
from gradscope.cli.graph import graph
from gradscope.cli.inspect import inspect
from gradscope.cli.options import with_parameters
from gradscope.cli.report import report
from gradscope.cli.rule import rule
from gradscope.cli.run.command import run
from gradscope.cli.shell.completion import completer_of
from gradscope.cli.shell.help import CommandHelp, ProgramHelp
from gradscope.cli.view.command import view
from gradscope.options.declaration import Argument, Parameter
from gradscope.version import __version__

COMMANDS = (
    ("inspect", inspect, True),
    ("check", check, False),
    ("clip-report", clip_report, False),
    ("graph", graph, True),
    ("report", report, True),
    ("compare", compare, True),
    ("view", view, False),
    ("export", export, True),
    ("fix", fix, True),
    ("rule", rule, False),
    ("config", config, False),
)
"""Name, function, and whether it shows its help when it is called without arguments."""


def _typed(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that has its options and arguments in typer's words."""

    def run(**values: object) -> None:
        command(**values)

    parameters = inspection.signature(command).parameters.values()
    return with_parameters(
        run,
        tuple(one.replace(annotation=_with_typer_options(one)) for one in parameters),
        command,
    )


def _with_typer_options(parameter: inspection.Parameter) -> object:
    annotation: object = parameter.annotation
    kind, *told = typing.get_args(annotation) or (annotation,)
    if not (told and isinstance(told[0], Parameter)):
        return annotation
    completer = completer_of(told[0], parameter.name)
    declare = typer.Argument if isinstance(told[0], Argument) else typer.Option
    return Annotated[kind, declare(*told[0].names, **told[0].settings, autocompletion=completer)]  # type: ignore[arg-type]


def _helped(command: Callable[..., None]) -> type[CommandHelp]:
    """Return the class of a command, whose help page shows its declared options."""
    return type(command.__name__, (CommandHelp,), {"function": staticmethod(command)})


app = typer.Typer(
    name="gradscope",
    cls=ProgramHelp,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _command, _needs_arguments in COMMANDS:
    app.command(_name, cls=_helped(_command), no_args_is_help=_needs_arguments)(_typed(_command))
# What follows the script is its own, options too.
app.command(
    "run",
    cls=_helped(run),
    no_args_is_help=True,
    context_settings={"allow_interspersed_args": False},
)(_typed(run))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gradscope {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "-V",
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """The debugger for gradients in PyTorch."""
