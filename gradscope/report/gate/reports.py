"""The reports of the runs that findings of a check are shown by."""

from collections.abc import Iterable, Iterator

from gradscope.analysis.report import Report
from gradscope.check.results import CheckedFinding, TargetResult


def with_reports(
    target: TargetResult, items: Iterable[CheckedFinding]
) -> Iterator[tuple[CheckedFinding, Report]]:
    """Yield findings of a target, each with the report of its run; others are not joined at all."""
    reports: dict[int, Report] = {}
    for item in items:
        if item.run not in reports:
            run = target.runs[item.run]
            reports[item.run] = Report.from_recording(run.recording, run.verdict)
        yield item, reports[item.run]
