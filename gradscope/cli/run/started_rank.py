"""Runs and records a rank that a watched script has started; that script reports on all of them."""

import sys
from typing import NoReturn

from gradscope.cli.errors import show_error
from gradscope.cli.run.recorders import RankPlan
from gradscope.cli.streams import open_streams
from gradscope.errors import ExitCode, GradscopeError
from gradscope.launch.execution import leave
from gradscope.launch.program import CannotRunError, Program
from gradscope.launch.session import run_watched
from gradscope.launch.started_ranks import own_rank, taken_plan


def main() -> NoReturn:
    """Run `[-m] SCRIPT ARGS`, and end this process as that does."""
    open_streams()
    plan, rank = RankPlan.of(taken_plan()), own_rank()
    is_module = sys.argv[1] == "-m"
    name, *arguments = sys.argv[1 + is_module :]
    program = Program(name=name, arguments=tuple(arguments), is_module=is_module)
    try:
        outcome = run_watched(program, lambda: plan.recorder(rank), _tell)
    except CannotRunError as error:
        show_error(error)
        raise SystemExit(ExitCode.CANNOT_JUDGE) from None
    leave(outcome.ending, outcome.ending.code)


def _tell(error: Exception) -> None:
    """Tell why a rank runs on without being recorded."""
    what = error if isinstance(error, GradscopeError) else GradscopeError("cannot record a rank")
    show_error(what if what is error else GradscopeError(what.what, cause=repr(error)))
