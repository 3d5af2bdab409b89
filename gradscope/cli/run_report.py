"""Reports on a run that has ended, or tells that there was nothing to see."""

import sys
from pathlib import Path

from gradscope.cli.errors import show_error, show_note
from gradscope.cli.run import PlannedRun
from gradscope.counting import counted
from gradscope.errors import ExitCode, GradscopeError
from gradscope.recording.store import load_recording
from gradscope.recording.writer import remove_logs

_NEVER_BACKWARD = {
    True: "never called backward",
    False: "was no longer watched when it may have called backward",
}
"""Why there is nothing to see, by whether it was watched to its end."""


def report_run(
    planned: PlannedRun,
    path: Path | None,
    *,
    trouble: Exception | None,
    stopped_after: int | None,
    has_failed: bool,
) -> ExitCode:
    """Report on a run that has ended, and return what its gate says.

    Args:
        planned: The run.
        path: Of its recording, None where there is none.
        trouble: Why there is none, where that has been told.
        stopped_after: After how many steps the script was stopped, where it was.
        has_failed: Whether it ended with an exit code of its own, which says enough.

    Raises:
        GradscopeError: The recording cannot be read, or the report not be written.
    """
    if stopped_after is not None:
        show_note(f"ended {planned.program.name} after {counted(stopped_after, 'step')}")
    if path is None:
        is_told = trouble is not None or has_failed
        return _unseen(planned, _why_unwatched(), is_told=is_told)
    recording = load_recording(path)
    if not (recording.steps or recording.events):
        path.unlink()
        remove_logs(path)
        return _unseen(planned, _NEVER_BACKWARD[recording.finished], is_told=has_failed)
    # All rules and what renders: who has nothing to report does not wait for them.
    from gradscope.cli.run_judging import judged_run

    return judged_run(planned, recording, path, has_failed=has_failed)


def _why_unwatched() -> str:
    if "torch" in sys.modules:
        return "got torch in a way that cannot be watched"
    return "never imported torch"


def _unseen(planned: PlannedRun, why: str, *, is_told: bool) -> ExitCode:
    """Tell that there was nothing to see, and return what the gate makes of it."""
    error = GradscopeError(
        f"{planned.program.name} {why}: there is nothing to report",
        help="processes that it starts are not watched: start each with gradscope run,"
        " as torchrun -m gradscope run does",
    )
    if is_told:
        pass
    elif planned.policy is None:
        show_note(error.what)
    else:
        show_error(error)
    return ExitCode.OK if planned.policy is None else ExitCode.CANNOT_JUDGE
