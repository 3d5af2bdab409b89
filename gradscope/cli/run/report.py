"""Reports on a run that has ended, or of which no gradient was observed."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gradscope.analysis.ranks.job import Job, RankEnding, endings
from gradscope.analysis.view import shown_site
from gradscope.check.results import CheckResult, Failure, Run, TargetResult
from gradscope.cli.errors import show_error, show_note
from gradscope.cli.progress import progress_line
from gradscope.cli.rank_recordings import rank_files
from gradscope.cli.run.planned import PlannedRun
from gradscope.errors import ExitCode, GradscopeError
from gradscope.frozen import dataclass
from gradscope.launch.execution import TELLING_SECONDS
from gradscope.launch.program import Program
from gradscope.phrasing import counted
from gradscope.progress import tell_stage
from gradscope.recording.finding import SkippedRule, Verdict
from gradscope.recording.meta import has_no_gradients, run_header
from gradscope.recording.paths import remove_logs
from gradscope.recording.records import Recording, Skipped, StepRecord
from gradscope.recording.store import load_recording
from gradscope.recording.tables import recording_of
from gradscope.version import __version__

_NEVER_BACKWARD = {
    True: "never called backward",
    False: "may have called backward after recording ended",
}
"""Reason for an empty recording, by whether recording lasted to the end of the program."""
_ORDER = {"failed": 0, "lost": 1, "consequence": 2}
_HELP = "a rank that ended by an exception comes first: what happened to the others follows from it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unobserved:
    """Reason why no gradient was observed."""

    why: str
    """Reason as a phrase about the program: `never called backward`."""
    seconds_of_children: float
    """CPU time in seconds of the processes that the program started."""

    @property
    def is_elsewhere(self) -> bool:
        """Return whether child processes may have run the training."""
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
    """Report on a run that has ended, and return the exit code of its check.

    Args:
        planned: The run.
        path: File of its recording; None without one.
        trouble: Exception that prevented the recording, which has been reported.
        stopped_after: Number of steps after which an option stopped the script; None otherwise.
        has_failed: Whether the script ended with an exit code other than 0.
        seconds_of_children: CPU time in seconds of the processes that the program started.

    Raises:
        GradscopeError: The recording cannot be read, or the report not be written.
    """
    if stopped_after is not None:
        show_note(f"stopped {planned.program.name} after {counted(stopped_after, 'step')}")
    if path is None:
        unobserved = Unobserved(why=_why_unwatched(), seconds_of_children=seconds_of_children)
        return _report_unobserved(
            planned, None, unobserved, is_told=trouble is not None or has_failed
        )
    with progress_line(is_wanted=planned.rank in (None, 0)):
        tell_stage("reading the recording")
        recording = load_recording(path)
    if has_no_gradients(recording):
        path.unlink()
        remove_logs(path)
        if ranks := rank_files(path):
            return _report_ranks(planned, ranks, has_failed=has_failed)
        why = _NEVER_BACKWARD[recording.finished]
        unobserved = Unobserved(why=why, seconds_of_children=seconds_of_children)
        return _report_unobserved(planned, recording, unobserved, is_told=has_failed)
    # Deferred: it imports all rules and renderers.
    from gradscope.cli.run.judging import judged_run

    return judged_run(planned, recording, path, has_failed=has_failed)


def _report_ranks(planned: PlannedRun, paths: Sequence[Path], *, has_failed: bool) -> ExitCode:
    """Report on the ranks that a script has started."""
    recordings = [load_recording(one) for one in paths]
    if all(map(has_no_gradients, recordings)):
        error = untrained_error(planned, paths, recordings)
        return _tell_unobserved(planned, recordings[0], error, note=error.what)
    from gradscope.cli.run.judging import judged_ranks

    return judged_ranks(planned, paths, recordings, has_failed=has_failed)


def _why_unwatched() -> str:
    if "torch" in sys.modules:
        return "loaded torch in a way that cannot be recorded"
    return "never imported torch"


def _only_defines_a_model(program: Program) -> bool:
    """Return whether a script defines a module, and has no word of a training."""
    if program.is_module:
        return False
    try:
        source = Path(program.name).read_bytes()
    except OSError:  # it changed its folder
        return False
    return b"nn.Module" in source and b"backward" not in source and b".fit(" not in source


def _report_unobserved(
    planned: PlannedRun, recording: Recording | None, unobserved: Unobserved, *, is_told: bool
) -> ExitCode:
    """Report that no gradient was observed, and return the exit code of the check."""
    name = planned.program.name
    error = unobserved.error(name)
    # If child processes computed, the note says how to record them.
    if unobserved.is_elsewhere:
        advice = f"; {error.help}"
    elif recording is not None and _only_defines_a_model(planned.program):
        advice = f"; to judge its model without training: gradscope inspect {name}"
    else:
        advice = ""
    return _tell_unobserved(planned, recording, error, None if is_told else f"{error.what}{advice}")


def _tell_unobserved(
    planned: PlannedRun, recording: Recording | None, error: GradscopeError, note: str | None
) -> ExitCode:
    """Write the reports that are asked for, and tell why they are empty.

    Args:
        planned: The run.
        recording: A recording without gradients; None without one.
        error: What a check says.
        note: What a run without a check says; None if an error has been told.
    """
    is_asked_for = planned.report is not None or planned.on_stdout
    if is_asked_for and planned.rank in (None, 0):
        # Deferred: it imports all rules and renderers.
        from gradscope.cli.run.judging import write_result

        write_result(planned, unobserved_result(planned, recording, error))
    if note is None:
        pass
    elif planned.policy is None:
        show_note(note)
    else:
        show_error(error)
    return ExitCode.OK if planned.policy is None else ExitCode.CANNOT_JUDGE


def unobserved_result(
    planned: PlannedRun, recording: Recording | None, error: GradscopeError
) -> CheckResult:
    """Return the result of a run without gradients, with a recording that says so.

    Args:
        planned: The run.
        recording: The recording; None if the program was never recorded.
        error: Reason why no gradient was observed.
    """
    from gradscope.rules.engine import judge  # imports every rule: not where nobody asks

    failure = Failure(what=error.what, help=error.help)
    recording = _printed(recording or _empty(planned), failure)
    verdict = _unjudged(judge(recording, planned.settings), failure.what)
    return CheckResult(
        version=__version__,
        command=planned.command,
        targets=(
            TargetResult(
                name=planned.program.name,
                runs=(Run(recording=recording, verdict=verdict),),
                failures=(failure,),
            ),
        ),
        policy=planned.policy,
    )


def _printed(recording: Recording, failure: Failure) -> Recording:
    """Return the recording with the reason why it has no gradients."""
    reason = failure.what if failure.help is None else f"{failure.what}; {failure.help}"
    # By a step of a run, reports tell that the recording is of one.
    nothing = StepRecord(index=0, kind="run", graph=None, loss=None, optimizer=None)
    return replace(
        recording,
        steps=recording.steps or (nothing,),
        skipped=(*recording.skipped, Skipped(what="gradients", reason=reason)),
    )


def _unjudged(verdict: Verdict, reason: str) -> Verdict:
    """Return the verdict with every rule skipped: none had a gradient to judge."""
    left_out = [item for item in verdict.skipped if item.is_left_out]
    others = [*verdict.ran, *(item.rule for item in verdict.skipped if not item.is_left_out)]
    skipped = [*left_out, *(SkippedRule(rule=code, reason=reason) for code in others)]
    return Verdict(skipped=tuple(sorted(skipped, key=lambda item: item.rule)))


def _empty(planned: PlannedRun) -> Recording:
    name = planned.program.name
    header = run_header(planned.command, name, torch="not watched", threads=1)
    return recording_of(header, lambda _: (), stats=())


def untrained_error(
    planned: PlannedRun, paths: Sequence[Path], recordings: Sequence[Recording]
) -> GradscopeError:
    """Return the error that no rank trained, with the ending of each.

    Args:
        planned: The run.
        paths: The recordings' files, which have the rank in their names: outside of a process group
            the recording does not know it.
        recordings: The recordings of the ranks.
    """
    found = [
        (_number(path), endings(Job.of((one,)))[0])
        for path, one in zip(paths, recordings, strict=True)
    ]
    found.sort(key=lambda one: (_ORDER.get(one[1].state, 3), one[1].seconds or 0.0, one[0]))
    told = "; ".join(f"rank {number}: {_text(ending)}" for number, ending in found)
    return GradscopeError(
        f"{planned.program.name} started {len(found)} ranks, and none ran a backward: {told}",
        help=_HELP,
    )


def _number(path: Path) -> int:
    text = path.name.rpartition(".rank")[2].partition(".")[0]
    return int(text) if text.isdecimal() else 0


def _text(ending: RankEnding) -> str:
    at = "" if ending.site is None else f" at {shown_site(ending.site, str(Path.cwd()))}"
    return f"{ending.what}{at}"
