"""The sheet of a report: which pictures there are for what was recorded."""

from gradscope.analysis.report import Report
from gradscope.report.html.picture import Sheet
from gradscope.report.html.run_sheet import run_sheet
from gradscope.report.html.step_sheet import step_sheet


def sheet_of(report: Report, title: str | None = None) -> Sheet:
    """Return the sheet of a report, under its target's name or another title."""
    if report.training_run is not None:
        return run_sheet(report, report.training_run, title or report.target.name)
    return step_sheet(report, title or report.target.name)
