"""Merges the runs of a target: one finding per cause, with the seeds that show it."""

from collections.abc import Sequence

from gradscope.analysis.step_view import ended_by, first_step
from gradscope.check.results import CheckedFinding, Failure, Run, TargetResult
from gradscope.recording.events import BackwardEvent, Event, GradEvent, event_of
from gradscope.recording.finding import Finding
from gradscope.recording.records import Recording
from gradscope.rules.engine import rank_of
from gradscope.rules.merging import by_cause


def target_result(name: str, runs: Sequence[Run], failures: Sequence[Failure] = ()) -> TargetResult:
    """Return the result of the runs of a target.

    Args:
        name: Name of the target.
        runs: Judged runs, by ascending seed.
        failures: Failures of the other runs.
    """
    skip_reasons = (skip_reason_of(run) for run in runs)
    return TargetResult(
        name=name,
        runs=tuple(runs),
        findings=merged(runs),
        failures=(*failures, *(failure for failure in skip_reasons if failure is not None)),
    )


def merged(runs: Sequence[Run]) -> tuple[CheckedFinding, ...]:
    """Return the findings of several runs, one per cause, the worst first."""
    causes = by_cause([run.verdict.findings for run in runs])
    found = [_merged(occurrences, runs) for occurrences in causes]
    return tuple(sorted(found, key=lambda item: rank_of(item.finding)))


def _merged(occurrences: list[tuple[int, Finding]], runs: Sequence[Run]) -> CheckedFinding:
    worst, finding = min(occurrences, key=lambda item: rank_of(item[1]))
    return CheckedFinding(
        finding=finding,
        run=worst,
        seeds=tuple(runs[position].recording.target.seed for position, _ in occurrences),
    )


def skip_reason_of(run: Run) -> Failure | None:
    """Return why a run says nothing about gradients; None if it does.

    Without this, a check would pass because it observed nothing.
    """
    recording = run.recording
    seed = recording.target.seed
    error = ended_by(recording)
    if error is not None:
        # The run has printed the exception, and the finding has the advice.
        cause = error.message.partition("\n")[0].partition(". ")[0]
        return Failure(what="autograd raised an exception", cause=cause, seed=seed)
    if not has_gradient(recording):
        return Failure(
            what="no parameter received a gradient",
            cause=_why_none(recording),
            help="gradscope inspect shows the reason for each parameter",
            seed=seed,
        )
    if not run.verdict.ran:
        return Failure(
            what="no rule could check the gradients",
            cause="; ".join(dict.fromkeys(item.reason for item in run.verdict.skipped)),
            help="select rules that apply to this target: gradscope rule lists all",
            seed=seed,
        )
    return None


def has_gradient(recording: Recording) -> bool:
    """Return whether backward left a gradient in any parameter, zero or not.

    A run may also have asked for gradients by `autograd.grad`, which leaves them in none.
    """
    if any(step.kind == "run" for step in recording.steps):
        return any(map(_reaches, map(event_of, recording.events)))
    return any(
        stat.reach in ("gradient", "zero")
        for stat in first_step(recording).parameter_stats.values()
    )


def _reaches(event: Event) -> bool:
    """Return whether an event of a run computed gradients, or may have."""
    return isinstance(event, GradEvent) or (isinstance(event, BackwardEvent) and event.may_reach)


def _why_none(recording: Recording) -> str:
    stats = first_step(recording).parameter_stats.values()
    reasons = dict.fromkeys(stat.reason for stat in stats if stat.reason is not None)
    return next(iter(reasons), "no backward was recorded")
