"""The command line."""

import errno
import sys
from typing import TYPE_CHECKING

from gradscope.cli.console import open_streams, seal_stdout
from gradscope.cli.errors import BugReport, show_error
from gradscope.errors import ExitCode, GradscopeError
from gradscope.garbage import collect_rarely

if TYPE_CHECKING:
    from gradscope.cli.app import app as app
    from gradscope.cli.run.planned import Planned


def __getattr__(name: str) -> object:
    # Deferred: the import of the parser draws random numbers, which would change a script's.
    if name == "app":
        from gradscope.cli.app import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """Run the command line and exit."""
    # A script's own collections come when they would without gradscope.
    if sys.argv[1:2] != ["run"]:
        collect_rarely()
    open_streams()
    planned = _parsed()
    # Deferred: other commands have ended before.
    from gradscope.cli.run.launching import launch, launch_plainly
    from gradscope.cli.run.planned import PlainRun, PlannedRanks, PlannedRun
    from gradscope.cli.run.rank_launching import launch_ranks

    if isinstance(planned, PlannedRun):
        launch(planned)
    if isinstance(planned, PlannedRanks):
        launch_ranks(planned)
    assert isinstance(planned, PlainRun)
    launch_plainly(planned)


def _parsed() -> "Planned":
    """Run the command line, and exit unless it leaves a script to be run."""
    from gradscope.cli.options import with_optional_values

    is_left = True
    with BugReport():
        try:
            line = with_optional_values(sys.argv[1:])
            # A plain line needs no typer, whose import takes long and draws random numbers.
            planned = _parsed_plainly(line) or _parsed_by_typer(line)
            is_left = False
            return planned
        except GradscopeError as error:
            show_error(error)
            sys.exit(ExitCode.CANNOT_JUDGE)
        except BrokenPipeError:  # the reader of stdout or stderr has left
            sys.exit(ExitCode.CANNOT_JUDGE)
        except OSError as error:
            if error.errno != errno.ENOSPC or error.filename is not None:
                raise
            # Only a stream has no file name: a help page or a table met a full disk.
            show_error(GradscopeError("cannot write to stdout", cause=error.strerror))
            sys.exit(ExitCode.CANNOT_JUDGE)
        finally:
            if is_left:
                seal_stdout()


def _parsed_plainly(line: list[str]) -> "Planned | None":
    """Run a plain command line; None for a line that typer has to parse."""
    from gradscope.cli.progress import progress_line
    from gradscope.cli.run.planned import RunPlanned
    from gradscope.cli.shell.commands import COMMANDS, function_of
    from gradscope.cli.shell.plain_parser import parsed

    name, *words = line or [""]
    if name not in COMMANDS or (COMMANDS[name].needs_words and not words):
        return None
    command = function_of(name)
    values = parsed(command, words, is_interspersed=COMMANDS[name].is_interspersed)
    if values is None:
        return None
    try:
        with progress_line():
            command(**values)
    except RunPlanned as planned:
        return planned.run
    sys.exit(ExitCode.OK)


def _parsed_by_typer(line: list[str]) -> "Planned":
    from gradscope.cli.program import program_for
    from gradscope.cli.progress import progress_line
    from gradscope.cli.run.planned import RunPlanned

    show_exception = sys.excepthook
    try:
        with progress_line():
            program_for(line)(line)
    except RunPlanned as planned:
        sys.excepthook = show_exception  # typer replaces it
        return planned.run
    raise AssertionError  # app() exits
