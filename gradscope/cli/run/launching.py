"""Runs and records a program, reports on it, and ends this process as the program would."""

import io
import sys
import warnings
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from traceback import print_exception
from typing import TYPE_CHECKING, NoReturn, TextIO

from gradscope.cli.errors import show_error, show_note, write_line
from gradscope.cli.run.planned import PlainRun, PlannedRun
from gradscope.errors import ExitCode, GradscopeError
from gradscope.garbage import rare_garbage_collection
from gradscope.launch.execution import (
    Ending,
    execute,
    leave,
    preserved_random_state,
    seconds_of_children,
    stopping,
)
from gradscope.launch.program import CannotRunError
from gradscope.launch.session import Outcome, Watch, run_watched
from gradscope.switch import OFF

if TYPE_CHECKING:
    import subprocess

    from gradscope.cli.run.live import LiveDisplay
    from gradscope.export.live_metrics import MetricsLog
    from gradscope.launch.started_ranks import StartedRanks

_CLOSELY, _THEN_EVERY = 20, 50
"""`--fail-fast` judges after each of the first 20 steps, then after every 50th."""


class WatchedRun:
    """A planned run, and its state so far."""

    def __init__(self, planned: PlannedRun) -> None:
        self.planned = planned
        self._seconds_of_children = seconds_of_children()
        self.live = _live_display(planned)
        self._log: MetricsLog | None = None
        self._view: subprocess.Popen[bytes] | None = None
        """Process of the server of `--view`: it ends some time after this one."""
        self.recording: Path | None = None
        """Path of the recording; None before torch is imported."""
        self.trouble: Exception | None = None
        """Exception that prevented the recording; None without one."""
        self.starting = ExitStack()
        """Context that has the ranks watched that the script starts."""
        self.ranks: StartedRanks | None = None
        """Ranks that the script starts as processes of their own; None before torch is imported."""
        self.stopped_after: int | None = None
        """Number of steps after which the script was stopped; None otherwise."""

    @property
    def seconds_of_children(self) -> float:
        """CPU time in seconds of the processes that the program started and that have ended."""
        return seconds_of_children() - self._seconds_of_children

    def make_watch(self) -> Watch:
        """Return the recorder of the training: torch has been imported."""
        from gradscope.cli.run.recorders import RankPlan, spawned_ranks_watched, training_watch
        from gradscope.launch.started_ranks import StartedRanks

        planned, watch = self.planned, self.planned.watch
        self.recording = planned.location.claim()
        if self.live is not None:
            self.live.begin(self.recording)
        if planned.is_viewed and planned.rank in (None, 0):
            self._view = _started_view(planned, self.recording)
        plan = RankPlan(base=self.recording, command=planned.command, watch=watch)
        self.ranks = StartedRanks(plan.text)
        self.starting.enter_context(spawned_ranks_watched(plan))
        self.starting.enter_context(self.ranks.watched())
        if watch.log and planned.rank in (None, 0):
            self._log = _metrics_log(planned, self.recording, watch.log)
        is_followed = planned.fails_fast or watch.stop_after or self.live or self._log
        on_step = self._on_step if is_followed else None
        return training_watch(self.recording, planned.command, watch, on_step)

    def tell(self, error: Exception) -> None:
        """Report why the script continues without being recorded."""
        self.close_live()
        self.trouble = error
        if isinstance(error, GradscopeError):
            show_error(error)
        else:
            _show_bug(error)
        show_note(
            f"{self.planned.program.name} continues without recording;"
            f" set {OFF} in the environment to disable gradscope from the start"
        )

    def _on_step(self, count: int) -> None:
        """Show an optimizer step, and stop the script after it if an option says so."""
        if self.live is not None:
            self.live.update(is_last=count == self.planned.watch.max_steps)
        if self._log is not None:
            self._log.update()
        stop_after = self.planned.watch.stop_after
        if stop_after is not None and count >= stop_after:
            self._stop(count, f"--stop-after {stop_after}")
        if self.planned.fails_fast and self._is_failing(count):
            self._stop(count, "--fail-fast")

    def _stop(self, count: int, option: str) -> None:
        self.stopped_after = count
        # SystemExit ends a thread silently, and wrappers of a `main` let it pass.
        raise stopping(option)

    def close_live(self) -> None:
        """End the live display and the log of metrics."""
        if self.live is not None:
            self.live.close()
        if self._log is not None:
            self._log.close()

    def _is_failing(self, count: int) -> bool:
        if self.recording is None or (count > _CLOSELY and count % _THEN_EVERY):
            return False
        from gradscope.cli.run.judging import failing

        return failing(self.planned, self.recording)


def _started_view(planned: PlannedRun, path: Path) -> "subprocess.Popen[bytes] | None":
    with preserved_random_state():
        from gradscope.cli.run.view_server import start_beside

    return start_beside(path, planned.settings)


def _metrics_log(planned: PlannedRun, path: Path, names: Sequence[str]) -> "MetricsLog":
    # Deferred: it imports all rules.
    with preserved_random_state():
        from gradscope.export.live_metrics import MetricsLog

    return MetricsLog(path, names, planned.settings, show_note)


def _live_display(planned: PlannedRun) -> "LiveDisplay | None":
    """Return the live display; None without `--live`, and on all ranks but the first."""
    if not planned.is_live or planned.rank not in (None, 0):
        return None
    # Its imports draw random numbers, so they come before the script.
    import random  # noqa: F401 - its state is preserved below

    with preserved_random_state():
        from gradscope.cli.run.live import LiveDisplay

    limits = (planned.watch.stop_after, planned.watch.max_steps)
    return LiveDisplay.on(
        sys.stderr,
        planned.color,
        planned.program.name,
        planned.settings,
        min((limit for limit in limits if limit), default=None),
    )


def launch(planned: PlannedRun) -> NoReturn:
    """Run a program to its end, report on it, and end this process as the program would."""
    run = WatchedRun(planned)
    stdout, stderr = sys.stdout, sys.stderr
    try:
        outcome = run_watched(planned.program, run.make_watch, run.tell)
    except CannotRunError as error:
        show_error(error)
        raise SystemExit(ExitCode.CANNOT_JUDGE) from None
    finally:
        run.starting.close()
        run.close_live()
    ending = outcome.ending
    # A process that was forked from the script leaves the report to the first one.
    if outcome.is_copy:
        leave(ending, ending.code)
    code = ExitCode.INTERRUPTED
    try:
        if run.ranks is not None:
            run.ranks.wait()
        # The script may have replaced streams, modules and warnings.
        with ExitStack() as own:
            own.enter_context(redirect_stdout(_open(stdout)))
            own.enter_context(redirect_stderr(_open(stderr)))
            own.enter_context(preserved_random_state())
            own.enter_context(outcome.shadows.lifted())
            own.enter_context(warnings.catch_warnings(action="ignore"))
            own.enter_context(rare_garbage_collection())
            code = _reported(run, outcome)
    except KeyboardInterrupt:
        # The user does not wait for the report.
        ending = Ending(code=1, is_interrupted=True)
    leave(ending, ending.code or code)


def launch_plainly(planned: PlainRun) -> NoReturn:
    """Run a program to its end, and end this process as the program would."""
    if planned.is_checked:  # with --quiet too: it did not pass
        write_line(f"note: {OFF} is set: {planned.program.name} is not checked")
    try:
        ending = execute(planned.program, lambda _: None)
    except CannotRunError as error:
        show_error(error)
        raise SystemExit(ExitCode.CANNOT_JUDGE) from None
    leave(ending, ending.code)


def _open(stream: TextIO) -> TextIO:
    """Flush and return the stream; return an empty one if it has been closed."""
    with suppress(OSError, ValueError):
        stream.flush()
    return io.StringIO() if stream.closed else stream


def _reported(run: WatchedRun, outcome: Outcome) -> ExitCode:
    """Report on a run, and return the exit code for a script that ended without an error."""
    with suppress(OSError):  # stderr may be closed
        from gradscope.cli.run.report import report_run

        try:
            return report_run(
                run.planned,
                None if outcome.watch is None else run.recording,
                trouble=run.trouble,
                stopped_after=run.stopped_after,
                has_failed=outcome.ending.code != 0,
                seconds_of_children=run.seconds_of_children,
            )
        except GradscopeError as error:
            show_error(error)
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - it must not change the script's exit code
            _show_bug(error)
    return ExitCode.OK if run.planned.policy is None else ExitCode.CANNOT_JUDGE


def _show_bug(error: Exception) -> None:
    write_line("error: this is a bug in gradscope; please report it with the traceback below")
    print_exception(error, file=sys.stderr)
