"""The parts of the text report that a page has besides its charts."""

import re

import pytest
import torch
from lxml import html
from torch import nn

from gradscope.analysis.report import Report
from gradscope.analysis.view import ViewOptions
from gradscope.report.document import Facts, Section, plain
from gradscope.report.documents.inspection import inspection_document
from gradscope.report.html.page import render_page
from gradscope.report.html.report_page import tab_of
from gradscope.rules.engine import judge
from tests.browser.recordings import sample_report
from tests.probes.test_overfit import recorded
from tests.report.html.charts.loops import finding, loop, report_of
from tests.report.test_attention import Mixed, trained


def sections(report):
    page = html.fromstring(render_page([tab_of(report)], "a report"))
    return {one.findtext(".//h2"): one for one in page.xpath("//section[@class='told-section']")}


def test_a_training_on_one_batch_is_on_the_page_as_in_the_text():
    torch.manual_seed(0)
    recording = recorded(nn.Linear(4, 3))
    report = Report.from_recording(recording, judge(recording))
    blocks = inspection_document(report, ViewOptions(), 100).blocks
    (text,) = (one for one in blocks if isinstance(one, Section) and one.title == "One batch")
    (facts,) = (one for one in text.blocks if isinstance(one, Facts))
    found = sections(report)["One batch"]
    assert "open" in found.find("details").attrib
    rows, losses = found.findall(".//table")
    told = [[cell.text_content() for cell in row] for row in rows.findall(".//tr") if len(row)]
    assert told == [[fact.name, plain(fact.line)] for fact in facts.rows]
    assert len(losses.findall(".//rect")) > 1


def test_logits_and_experts_are_on_the_page_of_a_model_that_has_them(tmp_path):
    found = sections(trained(Mixed(), (20, 3, 8), tmp_path))
    assert list(found) == ["Logits", "Experts"]
    assert "2 of 4" in found["Experts"].text_content()
    # The model has nothing to mend: a line stands for each part until it is opened.
    assert all("open" not in one.find("details").attrib for one in found.values())


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
