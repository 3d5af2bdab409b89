"""Runs and judges the targets of a check."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from gradscope.check.baseline import applied, prune_baseline, read_baseline, write_baseline
from gradscope.check.options import DEFAULT_BASELINE, BaselineOptions, PlannedTarget, Policy
from gradscope.check.results import (
    CheckResult,
    Failure,
    Run,
    TargetResult,
    target_result,
    unmatched_limits,
)
from gradscope.cli.errors import VERBOSITY, show_error, show_note
from gradscope.cli.output import check_destinations
from gradscope.cli.processes.isolation import Job
from gradscope.cli.processes.side_by_side import PlannedJob, cores, run_all
from gradscope.cli.rank_recordings import grouped, is_large, read_in_full, tell_missing
from gradscope.errors import GradscopeError
from gradscope.options.declaration import Overrides, field_values
from gradscope.phrasing import counted
from gradscope.recording.records import Recording
from gradscope.recording.store import load_recording
from gradscope.rules.settings import Settings
from gradscope.version import __version__


def checked(
    subjects: Sequence[PlannedTarget | Path],
    settings: Settings,
    command: str,
    *,
    policy: Policy,
    is_whole: bool,
    limit: int,
    is_reported: bool = False,
) -> CheckResult:
    """Judge targets, each run in a process of its own, and recordings.

    Args:
        subjects: Targets to run, and paths of recordings.
        settings: Settings of the rules.
        command: Command line as typed, for the record.
        policy: Policy that makes the check fail.
        is_whole: Whether all configured targets are checked. Limits that match nothing are then
            reported.
        limit: Number of processes at a time.
        is_reported: Whether the report that follows states failures; stderr does so otherwise.
    """
    paths = [one for one in subjects if isinstance(one, Path)]
    # First: ranks that do not fit together end the check, before anything slow runs.
    recorded = _checked_recordings(paths, settings, is_reported=is_reported)
    planned = [one for one in subjects if isinstance(one, PlannedTarget)]
    jobs = [job for target in planned for job in _jobs(target, command, is_reported=is_reported)]
    # Recordings come in the order of the jobs: all seeds of one target, then those of the next.
    seen = iter(run_all(jobs, limit) if jobs else ())
    targets = tuple(
        _checked(
            subject, list(islice(seen, len(subject.every_seed))), settings, is_reported=is_reported
        )
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


def _checked_recordings(
    paths: Sequence[Path], settings: Settings, *, is_reported: bool
) -> dict[Path, TargetResult]:
    """Return what is found in recordings, by path; in the ranks of a job by its first one.

    Raises:
        GradscopeError: There are ranks of several jobs, or a rank twice.
    """
    loaded: dict[Path, Recording] = {}
    results: dict[Path, TargetResult] = {}
    for path in paths:
        try:
            loaded[path] = load_recording(path, is_outline=is_large(paths))
        except GradscopeError as error:
            if not is_reported:
                show_error(error)
            failure = Failure(what=error.what, cause=error.cause, help=error.help)
            results[path] = TargetResult(name=str(path), failures=(failure,))
    for outlined in grouped(list(loaded), list(loaded.values())):
        tell_missing(outlined)
        job = read_in_full(outlined)
        run = _judged_job(job.recordings, settings)
        result = target_result(job.name, [run])
        results[job.paths[0]] = result if is_reported else _printed(result)
    return results


def _judged_job(recordings: Sequence[Recording], settings: Settings) -> Run:
    if len(recordings) == 1:
        return _judged(recordings[0], settings)
    from gradscope.rules.engine import judge_job

    ranks = tuple(recordings)
    return Run(recording=ranks[0], verdict=judge_job(ranks, settings), ranks=ranks)


def usual_limit(targets: Sequence[PlannedTarget]) -> int:
    """Return the number of processes at a time; on an accelerator they would share its memory."""
    devices = [target.options.device or "cpu" for target in targets]
    return cores() if all(device.startswith("cpu") for device in devices) else 1


def _jobs(target: PlannedTarget, command: str, *, is_reported: bool) -> Iterator[PlannedJob]:
    """Yield a job for each seed of a target."""
    for seed in target.every_seed:
        job = Job(
            name=target.name,
            spec=target.spec,
            options=replace(target.options, seed=seed),
            trial=target.trial,
            command=command,
            level=VERBOSITY.level,
            is_reported=is_reported,
        )
        yield PlannedJob(job=job, folder=target.folder, timeout=target.timeout)


def _checked(
    target: PlannedTarget,
    seen: Sequence[Recording | Failure],
    settings: Settings,
    *,
    is_reported: bool,
) -> TargetResult:
    """Return what is found in the runs of a target."""
    runs = [_judged(one, settings) for one in seen if isinstance(one, Recording)]
    failures = [one for one in seen if isinstance(one, Failure)]
    result = target_result(target.name, runs, failures)
    return result if is_reported else _printed(result, known=len(failures))


def _judged(recording: Recording, settings: Settings) -> Run:
    from gradscope.rules.engine import judge  # imports every rule: not for a misspelt target

    return Run(recording=recording, verdict=judge(recording, settings))


def _printed(result: TargetResult, *, known: int = 0) -> TargetResult:
    """Return a result after printing its failures.

    Args:
        result: Result of a target.
        known: Number of its failures that the runs have printed themselves.
    """
    for failure in result.failures[known:]:
        show_error(
            GradscopeError(f"{result.name}: {failure.what}", cause=failure.cause, help=failure.help)
        )
    return result


def chosen_baseline(configured: BaselineOptions, given: Overrides) -> BaselineOptions:
    """Return the configured baseline with the given options applied; its path is absolute."""
    chosen = replace(configured, **field_values(BaselineOptions, given))  # type: ignore[arg-type]
    if chosen.file is None:
        # The target's code may change the working directory.
        return replace(chosen, file=DEFAULT_BASELINE.resolve()) if chosen.writes else chosen
    return replace(chosen, file=Path(chosen.file).resolve()) if "baseline" in given else chosen


def check_baseline(options: BaselineOptions, given: Overrides) -> None:
    """Check that the baseline can be used, before anything slow runs.

    Args:
        options: The baseline as configured and given.
        given: The given options, by their configuration keys.

    Raises:
        GradscopeError: The baseline cannot be read, or an option needs one.
    """
    if options.file is None:
        for key in ("prune-baseline", "strict-baseline"):
            if given.get(key):
                raise GradscopeError(
                    f"--{key} needs a baseline file", help="name it with --baseline FILE"
                )
    elif options.file.exists() or not options.writes:
        read_baseline(options.file)
    else:
        check_destinations(_shown(options.file), None, force=False)


def baseline_applied(result: CheckResult, options: BaselineOptions) -> CheckResult:
    """Write or prune the baseline if an option says so, and return the check with it applied.

    Raises:
        GradscopeError: The baseline cannot be read or written.
    """
    file = options.file
    if file is None:
        return result
    if options.writes:
        known = write_baseline(file, result, options.targets)
        show_note(f"wrote {_shown(file)}: {counted(len(known.entries), 'known finding')}")
    elif options.prunes:
        removed = prune_baseline(file, result, options.targets)
        gone = counted(len(removed.entries), "finding")
        show_note(f"removed from {_shown(file)}: {gone} that no longer occurs")
    return applied(
        result, read_baseline(file), options.tolerance, options.is_strict, options.targets
    )


def _shown(file: Path) -> str:
    """Return a path relative to the working directory if it is inside."""
    return str(file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file)
