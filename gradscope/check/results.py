"""Results of a check: runs of targets, their findings merged by cause, and the decision."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import Literal

from gradscope.analysis.recording_index import ended_by, first_step
from gradscope.analysis.report import Report
from gradscope.check.options import Policy
from gradscope.errors import ExitCode
from gradscope.frozen import dataclass
from gradscope.phrasing import counted
from gradscope.recording.events import BackwardEvent, Event, GradEvent, event_of
from gradscope.recording.finding import Finding, Severity, Verdict, at_least, rank_of
from gradscope.recording.records import Recording
from gradscope.rules.fingerprint import by_cause
from gradscope.rules.settings import WHOLE_MODEL, Settings, matches

Outcome = Literal["passed", "failed", "unjudged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A run that could not be judged, with the texts of its `GradscopeError`."""

    what: str
    cause: str | None = None
    help: str | None = None
    needs_guess: bool = False
    """Whether `--allow-guesses` would guess what is missing."""
    seed: int | None = None
    """Seed of the run; None if it concerns the target as a whole."""
    file: str | None = None
    """File of the user's line that raised; None if unknown."""
    line: int | None = None


# Without slots, in which `cached_property` could keep nothing.
@dataclass(frozen=True, kw_only=True)
class Run:
    """A recording, judged by the rules."""

    recording: Recording
    verdict: Verdict
    ranks: tuple[Recording, ...] = ()
    """Recordings of all ranks, if a job was judged; `recording` is the first of them."""
    joined: Report | None = field(default=None, compare=False)
    """The report, where it has been made already."""

    @cached_property
    def report(self) -> Report:
        """The recording, or those of all ranks, joined with the findings."""
        return self.joined or Report.of_job(self.ranks or (self.recording,), self.verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedFinding:
    """A finding of one or several runs of a target, with one cause."""

    finding: Finding
    """The finding as in its worst run."""
    run: int
    """Index of the target's worst run."""
    seeds: tuple[int | None, ...]
    """Seeds of the runs with this finding, in order."""
    is_known: bool = False
    """Whether the baseline hides the finding: it is reported apart and does not count."""
    worsened: str | None = None
    """Change beyond the baseline's tolerance, such as `decades 5.2 instead of 2.1`; None without.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetResult:
    """A target with its runs and their findings."""

    name: str
    runs: tuple[Run, ...] = ()
    findings: tuple[CheckedFinding, ...] = ()
    """Findings, the worst first, known ones last."""
    failures: tuple[Failure, ...] = ()
    """Failures of the runs that could not be judged."""

    def report_of(self, item: CheckedFinding) -> Report:
        """Return the report of the run that shows a finding worst."""
        return self.runs[item.run].report

    def counted(self) -> Iterator[CheckedFinding]:
        """Yield the findings that the baseline does not hide."""
        return (item for item in self.findings if not item.is_known)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Result of one command, for one target or several."""

    version: str
    """Version of gradscope."""
    command: str
    """Command line as typed."""
    targets: tuple[TargetResult, ...]
    policy: Policy | None = None
    """Policy of the check; None for `inspect` and `report`."""
    stale: tuple[str, ...] = ()
    """Entries of the baseline that match nothing any more, in words."""
    stale_fails: bool = False
    unmatched: tuple[str, ...] = ()
    """Patterns of limits that match no module of any target."""

    def counts(self) -> dict[Severity, int]:
        """Return the number of findings of each level that count."""
        found: dict[Severity, int] = {"error": 0, "warning": 0, "note": 0}
        for target in self.targets:
            for item in target.counted():
                found[item.finding.severity] += 1
        return found


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


def unmatched_limits(settings: Settings, targets: Iterable[TargetResult]) -> tuple[str, ...]:
    """Return the patterns of limits that match no module of any target that was run."""
    paths = {
        module.path
        for target in targets
        for run in target.runs
        for module in run.recording.modules
        if module.path
    }
    return tuple(
        pattern
        # Targets that did not load have no modules to match.
        for pattern in settings.norm_limits
        if paths and pattern != WHOLE_MODEL and not any(matches(path, pattern) for path in paths)
    )


def fails(item: CheckedFinding, level: Severity) -> bool:
    """Return whether a finding fails a check by itself."""
    return not item.is_known and item.finding.severity in at_least(level)


def outcome_of(target: TargetResult, result: CheckResult) -> Outcome:
    """Return the outcome of a target."""
    if target.failures or not target.runs:
        return "unjudged"
    if result.policy is None:
        return "passed"
    is_failed = any(fails(item, result.policy.fail_level) for item in target.findings)
    return "failed" if is_failed else "passed"


def exit_code(result: CheckResult) -> ExitCode:
    """Return the exit code; a target that could not be judged overrides everything else."""
    outcomes = {outcome_of(target, result) for target in result.targets}
    # A check of nothing must not pass.
    if "unjudged" in outcomes or not result.targets:
        return ExitCode.CANNOT_JUDGE
    if result.policy is None or result.policy.exit_zero:
        return ExitCode.OK
    return ExitCode.FINDINGS if any(reasons(result)) else ExitCode.OK


def reasons(result: CheckResult) -> Iterator[str]:
    """Yield the reasons why a check fails, in words; nothing if it passes or could not judge."""
    policy = result.policy
    if policy is None:
        return
    counts = result.counts()
    for level in at_least(policy.fail_level):
        if counts[level]:
            yield counted(counts[level], level)
    if policy.max_warnings is not None and counts["warning"] > policy.max_warnings:
        yield f"{counted(counts['warning'], 'warning')}, above the limit of {policy.max_warnings:,}"
    if result.stale_fails and result.stale:
        yield f"{counted(len(result.stale), 'known finding')} no longer found"
