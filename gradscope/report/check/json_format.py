"""A check as JSON, by `gradscope/schemas/check-1.json`: one object, or one object a line."""

from collections.abc import Iterator

from gradscope.analysis.report import Report
from gradscope.check.decision import exit_code, outcome_of, reasons
from gradscope.check.results import CheckedFinding, CheckResult, Run, TargetResult
from gradscope.recording.finding import SEVERITIES
from gradscope.report import json_objects as objects
from gradscope.report.check.phrasing import with_reports
from gradscope.report.json_objects import Object


def check_object(result: CheckResult) -> Object:
    """Return the whole check."""
    return {
        **_meta(result),
        "gate": _gate(result),
        "targets": [_target(target, result) for target in result.targets],
        "findings": list(_findings(result)),
    }


def check_lines(result: CheckResult) -> Iterator[tuple[str, Object]]:
    """Yield its parts, each object after its kind."""
    yield "meta", _meta(result)
    yield "gate", _gate(result)
    yield from (("target", _target(target, result)) for target in result.targets)
    yield from (("finding", finding) for finding in _findings(result))


def _meta(result: CheckResult) -> Object:
    return {
        "schema_version": objects.SCHEMA_VERSION,
        "tool": {"name": "gradscope", "version": result.version},
        "command": result.command,
    }


def _gate(result: CheckResult) -> Object:
    policy, counts = result.policy, result.counts()
    outcomes = {outcome_of(target, result) for target in result.targets}
    is_unjudged = "unjudged" in outcomes or not outcomes
    return {
        "outcome": "unjudged" if is_unjudged else "failed" if any(reasons(result)) else "passed",
        "exit_code": int(exit_code(result)),
        "reasons": list(reasons(result)),
        "fail_level": None if policy is None else policy.fail_level,
        "max_warnings": None if policy is None else policy.max_warnings,
        "exit_zero": policy is not None and policy.exit_zero,
        "counts": {level: counts[level] for level in SEVERITIES},
        "stale": list(result.stale),
        "unmatched": list(result.unmatched),
    }


def _target(target: TargetResult, result: CheckResult) -> Object:
    return {
        "name": target.name,
        "outcome": outcome_of(target, result),
        "failures": [
            {"what": one.what, "cause": one.cause, "help": one.help, "seed": one.seed}
            for one in target.failures
        ],
        "runs": [_run(run) for run in target.runs],
    }


def _run(run: Run) -> Object:
    report = Report.from_recording(run.recording, run.verdict)
    meta = objects.meta_object(report)
    return {
        "target": meta["target"],
        "environment": meta["environment"],
        "summary": objects.summary_object(report),
        "rules": objects.rules_object(report),
    }


def _findings(result: CheckResult) -> Iterator[Object]:
    for target in result.targets:
        for item, report in with_reports(target, target.findings):
            yield _finding(item, target, report)


def _finding(item: CheckedFinding, target: TargetResult, report: Report) -> Object:
    return {
        "target": target.name,
        "seeds": list(item.seeds),
        "known": item.is_known,
        "worsened": item.worsened,
        **objects.finding_object(item.finding, report),
    }
