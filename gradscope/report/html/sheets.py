"""The sheet of a report: which pictures there are for what was recorded."""

from gradscope.report.html.picture import Sheet
from gradscope.report.html.step_sheet import step_sheet
from gradscope.report.model import Report


def sheet_of(report: Report, title: str | None = None) -> Sheet:
    """Return the sheet of a report, under its target's name or another title."""
    return step_sheet(report, title or report.target.name)
