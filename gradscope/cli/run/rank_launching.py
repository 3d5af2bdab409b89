"""Starts the ranks of a job on this machine, each watched by a process of its own."""

import os
import sys
from pathlib import Path
from typing import NoReturn

from gradscope.cli.console import open_streams
from gradscope.cli.errors import show_error
from gradscope.cli.run.planned import PlannedRanks, PlannedRun
from gradscope.cli.run.recorders import RankPlan
from gradscope.errors import ExitCode, GradscopeError
from gradscope.launch.execution import leave
from gradscope.launch.program import CannotRunError, Program
from gradscope.launch.session import run_watched
from gradscope.launch.started_ranks import own_rank, taken_plan


def launch_ranks(planned: PlannedRanks) -> NoReturn:
    """Run the ranks to their end with torch's own launcher, and end this process as they did."""
    try:
        from torch.distributed.elastic.multiprocessing.api import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.run import parse_args, run
    except ImportError as error:
        show_error(GradscopeError("cannot start ranks", cause=str(error)))
        sys.exit(ExitCode.CANNOT_JUDGE)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as the launcher does, which also tells it
    # A rendezvous on a free port of this machine, so that jobs do not meet.
    arguments = ["--standalone", "--nproc-per-node", str(planned.ranks)]
    recording = planned.run.location.choose()
    try:
        run(parse_args([*arguments, "-m", "gradscope", *planned.words]))
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        _report_on_ended(planned.run, recording)
        # The code of a killed rank is negative, and no process can exit with it.
        sys.exit(failure.exitcode if failure.exitcode > 0 else 1)
    except (KeyboardInterrupt, SignalException):
        sys.exit(ExitCode.INTERRUPTED)
    sys.exit(ExitCode.OK)


def _report_on_ended(planned: PlannedRun, recording: Path) -> None:
    """Report on ranks that were all ended, as the launcher does once one was killed."""
    from gradscope.cli.run.judging import judged_ended_ranks  # a rank needs no rules

    try:
        judged_ended_ranks(planned, recording)
    except GradscopeError as error:
        show_error(error)


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
