"""The command line as typer parses it."""

import inspect as inspection
import typing
from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from gradscope.cli.options import with_parameters
from gradscope.cli.shell.commands import COMMANDS, function_of
from gradscope.cli.shell.completion import completer_of
from gradscope.cli.shell.help import CommandHelp, ProgramHelp
from gradscope.options.declaration import Argument, Parameter
from gradscope.version import __version__


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


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gradscope {__version__}")
        raise typer.Exit


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


def program(names: Iterable[str]) -> typer.Typer:
    """Return the command line with some of the commands."""
    app = typer.Typer(
        name="gradscope",
        cls=ProgramHelp,
        no_args_is_help=True,
        # typer's own tracebacks list local variables, and so print tensors.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    # With a callback, typer expects the name of a command even if there is only one.
    app.callback()(root)
    for name in names:
        function = function_of(name)
        app.command(
            name,
            cls=_helped(function),
            no_args_is_help=COMMANDS[name].needs_words,
            context_settings={"allow_interspersed_args": COMMANDS[name].is_interspersed},
        )(_typed(function))
    return app


def program_for(line: typing.Sequence[str]) -> typer.Typer:
    """Return what parses a command line: the command that it begins with, otherwise all."""
    # The modules of other commands take time to import.
    named = line[:1]
    return program(named if named and named[0] in COMMANDS else COMMANDS)
