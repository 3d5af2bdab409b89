"""Which charts of a page are collapsed, and what stands for them."""

import re

import pytest

from gradscope.report.html.report_page import tab_of
from tests.browser.recordings import sample_report
from tests.report.html.charts.loops import finding, loop, report_of


def test_a_healthy_page_opens_the_first_chart_and_sums_up_the_others():
    report = report_of(loop([4.0, 2.0, 1.0]))
    first, *others = tab_of(report).charts
    assert first.is_open and first.gist == "3 steps, loss 4 → 1"
    assert others and not any(chart.is_open for chart in others)
    gists = {chart.name: chart.gist for chart in others}
    assert gists["timeline"] == "3 steps of 1 kind"


@pytest.mark.parametrize(("severity", "is_open"), [("note", False), ("warning", True)])
def test_charts_are_open_where_there_is_something_to_mend(severity, is_open):
    report = report_of(loop([4.0, 2.0]), finding(severity=severity, step=1))
    assert {chart.is_open for chart in tab_of(report).charts[1:]} == {is_open}


def test_the_line_on_tensors_tells_the_range_of_their_norms():
    report = sample_report("vanishing_stack.py")
    norms = [row.grad.norm for row in report.tensors]
    (gist,) = (chart.gist for chart in tab_of(report).charts if chart.name == "tensors")
    told = [float(text) for text in re.findall(r"[\d.]+(?:e-?\d+)?", gist)]
    assert told == pytest.approx([min(norms), max(norms)], rel=5e-3)
