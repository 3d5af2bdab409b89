"""The page of a check: what the gate says, and a sheet for each target."""

from gradscope.gate.results import CheckResult
from gradscope.report.html.page import render_page
from gradscope.report.html.sheets import sheet_of
from gradscope.report.model import Report


def render_check_html(result: CheckResult) -> str:
    """Return the page of a check, without a last line break."""
    sheets = [
        sheet_of(Report.from_recording(run.recording, run.verdict), target.name)
        for target in result.targets
        for run in target.runs[:1]
    ]
    return render_page(sheets, "gradscope check")
