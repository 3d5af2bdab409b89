"""A check as a code quality report of GitLab."""

import json
import math

from gradscope.check.results import CheckResult
from gradscope.recording.finding import Finding, Severity
from gradscope.recording.origin import TargetRecord
from gradscope.report.ci.locations import Location, target_location, unrecorded_location
from gradscope.report.ci.reported import (
    ReportedFailure,
    ReportedFinding,
    reported,
    worst_first,
)

_LONGEST = 2000
_SEVERITIES: dict[Severity, str] = {"error": "major", "warning": "minor", "note": "info"}

_Issue = dict[str, object]


def render_gitlab(result: CheckResult) -> str:
    """Return a JSON array: what could not be judged, then the findings, the worst first.

    Known findings are left out.
    """
    targets = reported(result)
    runs = (run for target in result.targets for run in target.runs)
    beside = next((run.recording.target for run in runs), None)
    issues = [
        *(_failure(one, beside) for target in targets for one in target.failures),
        *(_finding(one) for one in worst_first(targets)),
    ]
    return json.dumps(issues, indent=1)


def _finding(one: ReportedFinding) -> _Issue:
    notes = "; ".join(one.notes)
    return _issue(
        name=one.rule,
        description=f"{one.statement}{f' ({notes})' if notes else ''}. Help: {one.help}",
        identity=one.identity,
        severity="critical" if is_nonfinite(one.item.finding) else _SEVERITIES[one.severity],
        location=one.placement.location,
    )


def _failure(failure: ReportedFailure, beside: TargetRecord | None) -> _Issue:
    name, runs = failure.target.name, failure.target.runs
    return _issue(
        name="gradscope",
        description="; ".join(map(str.strip, [failure.statement, *failure.details])),
        identity=failure.identity,
        severity="blocker",
        location=target_location(runs[0].recording) if runs else unrecorded_location(name, beside),
    )


def _issue(
    *, name: str, description: str, identity: str, severity: str, location: Location
) -> _Issue:
    # GitLab shows the description alone, so it has to name the rule.
    text = f"{name.partition(' ')[0]}: {description}"
    return {
        "description": text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…",
        "check_name": name,
        "fingerprint": identity,
        "severity": severity,
        "location": {"path": location.path, "lines": {"begin": location.line}},
    }


def is_nonfinite(finding: Finding) -> bool:
    """Return whether a finding is an error about NaN or infinities: training is lost with them."""
    is_measured = any(
        isinstance(value, float) and not math.isfinite(value) for _, value in finding.evidence
    )
    return finding.severity == "error" and (is_measured or finding.name.startswith("non-finite"))
