"""Judges the recording of a run, or of all ranks of a job, and writes the report."""

import hashlib
import io
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from gradscope.analysis.kept_steps import KeptSteps
from gradscope.analysis.ranks.job import identity_of, is_communication
from gradscope.analysis.view import ViewOptions
from gradscope.check.options import Policy
from gradscope.check.results import CheckResult, Failure, Run, exit_code, fails, target_result
from gradscope.cli.console import make_console
from gradscope.cli.errors import show_error, show_note
from gradscope.cli.output import write_text
from gradscope.cli.progress import progress_line
from gradscope.cli.rank_recordings import Loaded, grouped, rank_files, tell_missing
from gradscope.cli.run.planned import PlannedRun
from gradscope.config.formats import is_of_ci
from gradscope.errors import ExitCode, GradscopeError
from gradscope.phrasing import counted
from gradscope.progress import tell_stage
from gradscope.recording.evidence.ranks import RankIdentity
from gradscope.recording.evidence.training import RunEnding
from gradscope.recording.records import Recording
from gradscope.recording.store import load_recording
from gradscope.report.document import Mark, Word
from gradscope.report.documents.check import closing_text, found_text
from gradscope.report.render import Manner, finding_lines, render, render_check
from gradscope.rules.engine import judge, judge_job
from gradscope.version import __version__

_CLAIM_SECONDS = 3600.0
"""Seconds for which the claim of a report is kept."""


def job_to_report(recording: Recording, path: Path) -> Loaded | None:
    """Return the recordings of a job if this rank is to report on it, None if another one does.

    The last rank of a host to finish reports, or before it one that fails by itself: the launcher
    ends the others.

    Args:
        recording: The recording of this rank, which is complete.
        path: Its file.
    """
    identity = identity_of(recording)
    if identity is None:
        return Loaded((path,), (recording,))
    job = _ranks_so_far(recording, path)
    finished = sum(one.finished for one in job.recordings)
    is_last = finished >= _expected(identity)
    # The launcher of a host is the parent of its ranks.
    if (is_last or _fails_by_itself(recording)) and _claim(identity, os.getppid()):
        return job
    return None


def _expected(identity: RankIdentity) -> int:
    """Return the number of ranks whose recordings are in the same folder."""
    text = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(text) if text.isdecimal() else identity.world_size


def _ranks_so_far(recording: Recording, path: Path) -> Loaded:
    """Return the ranks of the same job in a folder, finished or not."""
    base = path.with_name(path.name.removesuffix(".gradscope").partition(".rank")[0] + ".gradscope")
    found = {path: recording}
    for other in rank_files(base):
        if other == path:
            continue
        # Another rank may just be writing its file.
        with suppress(GradscopeError):
            found[other] = load_recording(other)
    same = [other for other, one in found.items() if other == path or _are_one(recording, one)]
    return grouped(same, [found[other] for other in same])[0]


def _are_one(recording: Recording, other: Recording) -> bool:
    """Return whether two recordings are of different ranks of one job."""
    identity = identity_of(other)
    if identity is None:
        return False
    try:
        return len(grouped([Path(), Path()], [recording, other])) == 1
    except GradscopeError:
        return False


def _fails_by_itself(recording: Recording) -> bool:
    ending = next(iter(recording.evidence_of(RunEnding)), None)
    if ending is None or ending.kind not in ("raised", "exited"):
        return False
    if ending.kind == "exited":
        return bool(ending.code)
    return not is_communication(ending.exception, ending.message)


def _claim(identity: RankIdentity, launcher: int) -> bool:
    """Return whether no other process of this host has claimed the report.

    Args:
        identity: The rank.
        launcher: Number of the process that started it.
    """
    # torchrun names every job alike unless it is given an id: its process tells them apart.
    key = f"{launcher} {identity.job} {identity.world_size}"
    name = f"gradscope-{hashlib.sha256(key.encode()).hexdigest()[:16]}.reported"
    lock = Path(tempfile.gettempdir(), name)
    with suppress(OSError):
        if lock.stat().st_mtime < identity.clock:  # of an earlier job
            lock.unlink()
    try:
        # Of several processes, only one creates the file.
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        return False
    _remove_old_claims(lock.parent)
    return True


def _remove_old_claims(folder: Path) -> None:
    """Remove the claims of jobs that ended long ago: a slow rank of this job may still ask."""
    for other in folder.glob("gradscope-*.reported"):
        with suppress(OSError):
            if time.time() - other.stat().st_mtime > _CLAIM_SECONDS:
                other.unlink()


def judged_run(
    planned: PlannedRun, recording: Recording, path: Path, *, has_failed: bool
) -> ExitCode:
    """Report on the recording of a run, and return the exit code of its check.

    Args:
        planned: The run.
        recording: Recording of the run.
        path: File of the recording.
        has_failed: Whether the script ended with an exit code other than 0.

    Raises:
        GradscopeError: The report cannot be written.
    """
    started = started_ranks(planned, recording, path)
    if started is not None:
        failures = _lost(planned, recording)
        return _judged_job(planned, started, failures, has_failed=has_failed)
    job = job_to_report(recording, path)
    # A process outside any group is one of several scripts, of which the first reports.
    reports = job is not None and (identity_of(recording) is not None or not planned.rank)
    if job is None and planned.policy is None:
        _tell_written(planned, [path])
        return ExitCode.OK
    ranks = (recording,) if job is None else job.recordings
    result = _told_and_checked(planned, ranks, _lost(planned, recording))
    code = _reported(planned, result, has_failed=has_failed, is_reported=reports)
    if not reports and job is not None and code is not ExitCode.OK:
        show_error(GradscopeError(f"rank {planned.rank}: {closing_text(result)}"))
    _tell_written(planned, [path])
    return code


def started_ranks(planned: PlannedRun, recording: Recording, path: Path) -> Loaded | None:
    """Return the job of a rank that has started the others; None for any other recording.

    The recording of this rank is renamed as those of the others are.
    """
    identity = identity_of(recording)
    if identity is None or planned.rank is not None or not rank_files(path):
        return None
    named = path.with_name(f"{path.stem}.rank{identity.rank}{path.suffix}")
    if not named.exists():
        path = path.rename(named)
    job = _ranks_so_far(recording, path)
    return job if len(job.recordings) > 1 else None


def judged_ranks(
    planned: PlannedRun,
    paths: Sequence[Path],
    recordings: Sequence[Recording],
    *,
    has_failed: bool,
) -> ExitCode:
    """Report on the ranks that a script has started, and return the exit code of their check.

    Args:
        planned: The run.
        paths: Files of the ranks' recordings.
        recordings: The recordings.
        has_failed: Whether the script ended with an exit code other than 0.

    Raises:
        GradscopeError: The recordings are not of one job, or the report cannot be written.
    """
    job = grouped(paths, recordings)[0]
    return _judged_job(planned, job, has_failed=has_failed)


def judged_ended_ranks(planned: PlannedRun, path: Path) -> None:
    """Report on the ranks that this process has launched, unless one of them did.

    Args:
        planned: The run.
        path: The recording after which those of the ranks are named.

    Raises:
        GradscopeError: A recording cannot be read, or the report cannot be written.
    """
    paths = sorted(rank_files(path), key=lambda one: one.stat().st_mtime)
    if not paths:
        return
    recording = load_recording(paths[-1])
    identity = identity_of(recording)
    if identity is not None and _claim(identity, os.getpid()):
        _judged_job(planned, _ranks_so_far(recording, paths[-1]), has_failed=True)


def _judged_job(
    planned: PlannedRun, job: Loaded, failures: Sequence[Failure] = (), *, has_failed: bool
) -> ExitCode:
    tell_missing(job)
    result = _told_and_checked(planned, job.recordings, failures)
    code = _reported(planned, result, has_failed=has_failed, is_reported=True)
    _tell_written(planned, job.paths)
    return code


def _tell_written(planned: PlannedRun, paths: Sequence[Path]) -> None:
    # A numbered recording is in the working directory: its name suffices.
    names = [path.name if planned.location.is_numbered else str(path) for path in paths]
    show_note(f"wrote {', '.join(names)}")


def _reported(
    planned: PlannedRun, result: CheckResult, *, has_failed: bool, is_reported: bool
) -> ExitCode:
    """Write the report where this process is to, and return what the gate says."""
    code = ExitCode.OK if planned.policy is None else exit_code(result)
    closing = "" if planned.policy is None or (has_failed and not code) else closing_text(result)
    if is_reported:
        _write(planned, result, closing)
    if is_reported and planned.policy is not None:
        for failure in result.targets[0].failures:
            show_error(GradscopeError(failure.what, cause=failure.cause, help=failure.help))
    return code


def failing(planned: PlannedRun, path: Path) -> bool:
    """Return whether the recording of a running script fails the check already."""
    recording = load_recording(path)
    level = (planned.policy or Policy()).fail_level
    (target,) = _checked(planned, (recording,)).targets
    return any(fails(item, level) for item in target.findings)


def _told_and_checked(
    planned: PlannedRun, ranks: Sequence[Recording], failures: Sequence[Failure]
) -> CheckResult:
    """Return the result of a run that has ended. On a terminal, a line shows that it is judged."""
    # Ranks share a terminal: one of them shows its progress.
    with progress_line(is_wanted=planned.rank in (None, 0)):
        tell_stage("applying the rules" + (f" to {len(ranks)} ranks" if len(ranks) > 1 else ""))
        return _checked(planned, ranks, failures)


def _checked(
    planned: PlannedRun, ranks: Sequence[Recording], failures: Sequence[Failure] = ()
) -> CheckResult:
    if len(ranks) == 1:
        run = Run(recording=ranks[0], verdict=judge(ranks[0], planned.settings))
    else:
        verdict = judge_job(ranks, planned.settings)
        run = Run(recording=ranks[0], verdict=verdict, ranks=tuple(ranks))
    return CheckResult(
        version=__version__,
        command=planned.command,
        targets=(target_result(planned.program.name, [run], failures),),
        policy=planned.policy,
    )


def _lost(planned: PlannedRun, recording: Recording) -> tuple[Failure, ...]:
    """Return why a check cannot judge a run that was not recorded to its end; empty otherwise."""
    if recording.finished or planned.policy is None:
        return ()
    seen = counted(KeptSteps(recording).total, "step")
    what = f"{planned.program.name} continued after the {seen} that were recorded"
    return (Failure(what=what, cause="recording had ended, see the note above"),)


def write_result(planned: PlannedRun, result: CheckResult) -> None:
    """Write the requested report of a run in which no gradient was observed."""
    closing = "" if planned.policy is None else closing_text(result)
    _write(planned, result, closing)


def _write(planned: PlannedRun, result: CheckResult, closing: str) -> None:
    """Write the report to its file, or to a stream.

    Args:
        planned: The run.
        result: Result of the run.
        closing: Outcome of the check in a sentence; empty without a check.
    """
    stream = sys.stdout if planned.on_stdout else sys.stderr
    if planned.report is not None:
        stream = io.StringIO()
    console = make_console(stream, planned.color)
    with progress_line(is_wanted=planned.rank in (None, 0)):
        tell_stage("writing the report")
        text = _rendered(planned, result, closing, console)
    if stream is sys.stderr:
        text = f"\n{text}"  # apart from what the script has printed
    outcome = closing or found_text(result.targets[0].findings)
    findings = finding_lines(result) if planned.report is not None else ()
    write_text(text, planned.report, stream, outcome=outcome, findings=findings)
    planned.output.open(planned.report)


def _rendered(planned: PlannedRun, result: CheckResult, closing: str, console: Console) -> str:
    form = planned.output.form
    manner = Manner(is_brief=planned.is_quiet)
    if is_of_ci(form) or (planned.policy is not None and form != "full"):
        return render_check(result, form, console, manner)
    (run,) = result.targets[0].runs
    report = run.report
    if closing:
        mark: Mark = "good" if exit_code(result) is ExitCode.OK else "bad"
        manner = replace(manner, closing=Word(closing, mark))
    return render(report, form, ViewOptions(), console, manner)
