"""Reports as a page of HTML."""

from collections.abc import Sequence

from gradscope.analysis.report import Report
from gradscope.report.html.page import SIZE_BUDGET, render_page, within
from gradscope.report.html.tabs import run_tabs, tab_of

_ALONE = "report this recording alone to see them"


def render_html(reports: Sequence[Report]) -> str:
    """Return a page with a sheet for each report, without a last line break.

    That of one training run has tabs for its captured steps too.
    """
    run = reports[0].training_run
    if run is not None and len(reports) == 1:
        tabs = run_tabs(reports[0], run)
    else:
        whole = [tab_of(report) for report in reports]
        tabs = within(SIZE_BUDGET, whole, [0] * len(whole), _ALONE) if len(whole) > 1 else whole
    return render_page(tabs, f"{reports[0].target.name} · gradscope")
