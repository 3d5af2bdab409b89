"""Decides whether a check passes, and finds limits that match nothing."""

from collections.abc import Iterable, Iterator

from gradscope.check.results import CheckedFinding, CheckResult, Outcome, TargetResult
from gradscope.errors import ExitCode
from gradscope.phrasing import counted
from gradscope.recording.finding import Severity, at_least
from gradscope.rules.patterns import matches
from gradscope.rules.settings import WHOLE_MODEL, Settings


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
