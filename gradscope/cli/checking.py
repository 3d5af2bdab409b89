"""Runs and judges the targets of a check, one after the other."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gradscope import __version__
from gradscope.check.baseline import applied, prune_baseline, read_baseline, write_baseline
from gradscope.check.decision import unmatched_limits
from gradscope.check.merging import target_result
from gradscope.check.options import BaselineOptions, PlannedTarget, Policy
from gradscope.check.results import CheckResult, Failure, Run, TargetResult
from gradscope.cli.check_options import BaselineGroup
from gradscope.cli.errors import QUIET, VERBOSITY, show_error, show_note, write_line
from gradscope.cli.isolation import run_apart
from gradscope.cli.job import Job
from gradscope.cli.jobs import grouped
from gradscope.cli.output import check_destinations
from gradscope.errors import GradscopeError
from gradscope.phrasing import counted
from gradscope.recording.records import Recording
from gradscope.recording.store import load_recording
from gradscope.rules.engine import judge
from gradscope.rules.job_judging import judge_job
from gradscope.rules.settings import Settings


def checked(
    subjects: Sequence[PlannedTarget | Path],
    settings: Settings,
    command: str,
    *,
    policy: Policy,
    is_whole: bool,
) -> CheckResult:
    """Return what is found in targets, each run in processes of its own, and in recordings.

    Args:
        subjects: Targets to run, and paths of recordings.
        settings: Which rules judge, and how.
        command: As typed, for the record.
        policy: What makes the check fail.
        is_whole: Whether it is all that is configured: a limit that matches nothing is told then.
    """
    is_told = len(subjects) > 1 or any(
        isinstance(subject, PlannedTarget) and subject.seeds > 1 for subject in subjects
    )
    recorded = _checked_recordings([one for one in subjects if isinstance(one, Path)], settings)
    targets = tuple(
        _checked(subject, settings, command, is_told=is_told)
        if isinstance(subject, PlannedTarget)
        else recorded[subject]
        for subject in subjects
        if isinstance(subject, PlannedTarget) or subject in recorded
    )
    return CheckResult(
        version=__version__,
        command=command,
        targets=targets,
        policy=policy,
        unmatched=unmatched_limits(settings, targets) if is_whole else (),
    )


def _checked_recordings(paths: Sequence[Path], settings: Settings) -> dict[Path, TargetResult]:
    """Return what is found in recordings, by path; in the ranks of a job by its first one.

    Raises:
        GradscopeError: There are ranks of several jobs, or a rank twice.
    """
    loaded: dict[Path, Recording] = {}
    results: dict[Path, TargetResult] = {}
    for path in paths:
        try:
            loaded[path] = load_recording(path)
        except GradscopeError as error:
            show_error(error)
            failure = Failure(what=error.what, cause=error.cause, help=error.help)
            results[path] = TargetResult(name=str(path), failures=(failure,))
    for job in grouped(list(loaded), list(loaded.values())):
        run = _judged_job(job.recordings, settings)
        results[job.paths[0]] = _told(target_result(job.name, [run]))
    return results


def _judged_job(recordings: Sequence[Recording], settings: Settings) -> Run:
    if len(recordings) == 1:
        return _judged(recordings[0], settings)
    ranks = tuple(recordings)
    return Run(recording=ranks[0], verdict=judge_job(ranks, settings), ranks=ranks)


def _checked(
    target: PlannedTarget, settings: Settings, command: str, *, is_told: bool
) -> TargetResult:
    runs: list[Run] = []
    failures: list[Failure] = []
    for seed in target.every_seed:
        if is_told:
            _tell(f"checking {target.name}, seed {seed}")
        job = Job(
            name=target.name,
            spec=target.spec,
            options=replace(target.options, seed=seed),
            trial=target.trial,
            command=command,
            level=VERBOSITY.level,
        )
        seen = run_apart(job, target.folder, target.timeout)
        if isinstance(seen, Recording):
            runs.append(_judged(seen, settings))
        else:
            failures.append(seen)
    return _told(target_result(target.name, runs, failures), known=len(failures))


def _judged(recording: Recording, settings: Settings) -> Run:
    return Run(recording=recording, verdict=judge(recording, settings))


def _told(result: TargetResult, *, known: int = 0) -> TargetResult:
    """Return a result after telling on stderr why it could not be judged.

    Args:
        result: Of a target.
        known: How many of its failures the runs have told themselves.
    """
    for failure in result.failures[known:]:
        show_error(
            GradscopeError(f"{result.name}: {failure.what}", cause=failure.cause, help=failure.help)
        )
    return result


def _tell(text: str) -> None:
    """Print what is being done, where somebody is looking."""
    if sys.stderr.isatty() and VERBOSITY.level > QUIET:
        write_line(text)


def check_baseline(group: BaselineGroup, options: BaselineOptions) -> None:
    """Make sure that the baseline can be used, before anything slow is run.

    Raises:
        GradscopeError: It cannot be read, or none is named.
    """
    if options.file is None:
        for name, is_given in (("prune", group.prune_baseline), ("strict", group.strict_baseline)):
            if is_given:
                raise GradscopeError(
                    f"--{name}-baseline needs a baseline file", help="name it with --baseline FILE"
                )
    elif options.file.exists() or not group.write_baseline:
        read_baseline(options.file)
    else:
        check_destinations(_shown(options.file), None, force=False)


def baseline_applied(
    result: CheckResult, group: BaselineGroup, options: BaselineOptions
) -> CheckResult:
    """Return a check after its baseline has been written, pruned or applied, as the user asks.

    Raises:
        GradscopeError: The baseline cannot be read or written.
    """
    file = options.file
    if file is None:
        return result
    if group.write_baseline:
        known = write_baseline(file, result, options.targets)
        show_note(f"wrote {_shown(file)}: {counted(len(known.entries), 'known finding')}")
    elif group.prune_baseline:
        removed = prune_baseline(file, result, options.targets)
        gone = counted(len(removed.entries), "finding")
        show_note(f"removed from {_shown(file)}: {gone} that no longer occurs")
    return applied(
        result, read_baseline(file), options.tolerance, options.is_strict, options.targets
    )


def _shown(file: Path) -> str:
    """Return a path as it is shorter to read: relative to the working directory where it can be."""
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)
