"""A check's report in single lines that begin with `file:line:`, for editors and grep."""

from collections.abc import Iterator

from gradscope.check.decision import outcome_of
from gradscope.check.results import CheckedFinding, CheckResult, TargetResult
from gradscope.phrasing import printable
from gradscope.report.check.phrasing import (
    closing_text,
    failure_text,
    remarks,
    seeds_text,
    when_text,
    with_reports,
)
from gradscope.report.concise import finding_line


def render_concise(result: CheckResult) -> str:
    """Return a line a finding, a line a target that could not be judged, and the verdict."""
    lines = [line for target in result.targets for line in _lines(target, result)]
    return "\n".join(printable(line) for line in (*lines, *remarks(result), closing_text(result)))


def _lines(target: TargetResult, result: CheckResult) -> Iterator[str]:
    for item, report in with_reports(target, target.counted()):
        yield f"{finding_line(item.finding, report)}{_standing(item, target)}"
    if outcome_of(target, result) == "unjudged":
        for failure in target.failures:
            yield f"{target.name}: error: {failure_text(failure)}"


def _standing(item: CheckedFinding, target: TargetResult) -> str:
    seeds, when = seeds_text(item, target), when_text(item, target)
    worse = f" (worse than the baseline: {item.worsened})" if item.worsened else ""
    return f"{f' ({when})' if when else ''}{f' (seeds: {seeds})' if seeds else ''}{worse}"
