"""Reports on a run that has ended, or tells that there was nothing to see."""

import sys
from dataclasses import dataclass
from pathlib import Path

from gradscope.cli.errors import show_error, show_note
from gradscope.cli.jobs import rank_files
from gradscope.cli.run import PlannedRun
from gradscope.errors import ExitCode, GradscopeError
from gradscope.launch.children import TELLING_SECONDS
from gradscope.phrasing import counted
from gradscope.recording.records import Recording
from gradscope.recording.run_header import has_no_gradients
from gradscope.recording.store import load_recording
from gradscope.recording.writer import remove_logs

_NEVER_BACKWARD = {
    True: "never called backward",
    False: "may have called backward after recording ended",
}
"""Why there is nothing to see, by whether it was watched to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Why nothing was seen of gradients."""

    why: str
    """Reason as a phrase about the program: `never called backward`."""
    seconds_of_children: float
    """CPU time of the processes that it has started."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether child processes may have run the training."""
        return self.seconds_of_children >= TELLING_SECONDS

    def error(self, name: str) -> GradscopeError:
        """Return the error that `--check` reports.

        Args:
            name: Name of the program.
        """
        if not self.is_elsewhere:
            return GradscopeError(
                f"{name} {self.why}: nothing to report",
                help="child processes are not recorded: start each with gradscope run,"
                " as torchrun -m gradscope run does",
            )
        return GradscopeError(
            f"{name} {self.why}, and its child processes, which computed for "
            f"{self.seconds_of_children:.3g} s, are not recorded: nothing to report",
            help="record each process: call gradscope.watch() in the function that it runs, or"
            " start it with gradscope run, as torchrun -m gradscope run does",
        )


def report_run(
    planned: PlannedRun,
    path: Path | None,
    *,
    trouble: Exception | None,
    stopped_after: int | None,
    has_failed: bool,
    seconds_of_children: float,
) -> ExitCode:
    """Report on a run that has ended, and return what its gate says.

    Args:
        planned: The run.
        path: Of its recording, None where there is none.
        trouble: Why there is none, where that has been told.
        stopped_after: After how many steps the script was stopped, where it was.
        has_failed: Whether it ended with an exit code of its own, which says enough.
        seconds_of_children: CPU time of the processes that it started.

    Raises:
        GradscopeError: The recording cannot be read, or the report not be written.
    """
    if stopped_after is not None:
        show_note(f"stopped {planned.program.name} after {counted(stopped_after, 'step')}")
    if path is None:
        unseen = Unseen(why=_why_unwatched(), seconds_of_children=seconds_of_children)
        return _report_unseen(planned, None, unseen, is_told=trouble is not None or has_failed)
    recording = load_recording(path)
    if has_no_gradients(recording):
        path.unlink()
        remove_logs(path)
        if ranks := rank_files(path):
            from gradscope.cli.run_judging import judged_ranks

            return judged_ranks(planned, ranks, has_failed=has_failed)
        why = _NEVER_BACKWARD[recording.finished]
        unseen = Unseen(why=why, seconds_of_children=seconds_of_children)
        return _report_unseen(planned, recording, unseen, is_told=has_failed)
    # All rules and what renders: who has nothing to report does not wait for them.
    from gradscope.cli.run_judging import judged_run

    return judged_run(planned, recording, path, has_failed=has_failed)


def _why_unwatched() -> str:
    if "torch" in sys.modules:
        return "loaded torch in a way that cannot be recorded"
    return "never imported torch"


def _report_unseen(
    planned: PlannedRun, recording: Recording | None, unseen: Unseen, *, is_told: bool
) -> ExitCode:
    """Tell that no gradient was seen, in the report too, and return what the gate makes of it."""
    error = unseen.error(planned.program.name)
    is_asked_for = planned.report is not None or planned.on_stdout
    if is_asked_for and planned.rank in (None, 0):
        from gradscope.cli.run_judging import write_result
        from gradscope.cli.run_unseen import unseen_result

        write_result(planned, unseen_result(planned, recording, error))
    if is_told:
        pass
    elif planned.policy is None:
        # Where processes computed, the way to see them is what is asked for next.
        advice = f"; {error.help}" if unseen.is_elsewhere else ""
        show_note(f"{error.what}{advice}")
    else:
        show_error(error)
    return ExitCode.OK if planned.policy is None else ExitCode.CANNOT_JUDGE
