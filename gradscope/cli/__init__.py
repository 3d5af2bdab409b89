"""The command line."""

import sys
from typing import TYPE_CHECKING

from gradscope.cli.errors import BugReport, show_error
from gradscope.cli.streams import open_streams, seal_stdout
from gradscope.errors import ExitCode, GradscopeError

if TYPE_CHECKING:
    from gradscope.cli.app import app as app
    from gradscope.cli.rank_launching import PlannedRanks
    from gradscope.cli.run import PlainRun, PlannedRun


def __getattr__(name: str) -> object:
    # A script that is run is not to find the parser imported, which draws random numbers.
    if name == "app":
        from gradscope.cli.app import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """Run the command line and exit."""
    open_streams()
    planned = _parsed()
    from gradscope.cli.launching import launch
    from gradscope.cli.plain_launching import launch_plainly
    from gradscope.cli.rank_launching import PlannedRanks, launch_ranks
    from gradscope.cli.run import PlannedRun

    if isinstance(planned, PlannedRun):
        launch(planned)
    if isinstance(planned, PlannedRanks):
        launch_ranks(planned)
    launch_plainly(planned)


def _parsed() -> "PlannedRun | PlainRun | PlannedRanks":
    """Run the command line, and exit unless it leaves a script to be run."""
    is_left = True
    with BugReport():
        try:
            planned = _planned(sys.argv[1:]) or _parsed_by_typer()
            is_left = False
            return planned
        except GradscopeError as error:
            show_error(error)
            sys.exit(ExitCode.CANNOT_JUDGE)
        finally:
            if is_left:
                seal_stdout()


def _planned(line: list[str]) -> "PlannedRun | PlainRun | PlannedRanks | None":
    """Return the run that a plain command line asks for; None where typer is to say."""
    if line[:1] != ["run"]:
        return None
    from gradscope.cli.plain_parser import parsed
    from gradscope.cli.run import RunPlanned, run

    values = parsed(run, line[1:])
    if values is None:
        return None
    try:
        run(**values)
    except RunPlanned as planned:
        return planned.run
    raise AssertionError  # it has planned a run, or raised an error


def _parsed_by_typer() -> "PlannedRun | PlainRun | PlannedRanks":
    from gradscope.cli.app import app
    from gradscope.cli.run import RunPlanned

    show_exception = sys.excepthook
    try:
        app()
    except RunPlanned as planned:
        sys.excepthook = show_exception  # typer has put its own in the place
        return planned.run
    raise AssertionError  # app() exits
