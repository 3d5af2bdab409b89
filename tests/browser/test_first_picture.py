"""The first chart is drawn before plotly starts, which takes a second: the same marks."""

import pytest
from playwright.sync_api import expect

from gradscope.report.html.report_page import render_html
from tests.browser.large import large_inspection, large_run

CHARTS = {"depth": lambda: large_inspection(2), "curves": lambda: large_run(40, 3)}

TOTAL = "found => found.reduce((sum, one) => sum + Number(one.dataset.marks), 0)"


@pytest.fixture(params=CHARTS)
def name(request):
    return request.param


@pytest.fixture
def page_of(open_page, tmp_path, name):
    """Opens the page of a report; where plotly is held, its text never runs."""
    text = render_html([CHARTS[name]()])

    def page_of(*, is_held, width=1280):
        path = tmp_path / f"{is_held}.html"
        path.write_text(text.replace('id="plotly"', 'id="held"') if is_held else text, "utf-8")
        return open_page(path, width=width).locator(f"#panel-0-{name}")

    return page_of


def test_marks_and_axes_are_there_before_plotly(page_of):
    sketched, drawn = page_of(is_held=True), page_of(is_held=False)
    expect(sketched.locator(".sketch svg")).to_be_visible()
    expect(sketched.locator(".js-plotly-plot")).to_have_count(0)
    expect(drawn.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    expect(drawn.locator(".sketch")).to_have_count(0)
    marks = sketched.locator(".sketch path[data-marks]").evaluate_all(TOTAL)
    assert marks == drawn.locator(".scatterlayer .point").count() > 0
    heights = [
        at.evaluate("one => one.getBoundingClientRect().height")
        for at in (sketched.locator(".canvas"), drawn.locator(".canvas"))
    ]
    assert heights[0] == pytest.approx(heights[1], abs=30)


def test_a_sketch_lies_within_a_narrow_page(page_of):
    section = page_of(is_held=True, width=420)
    expect(section.locator(".sketch svg")).to_be_visible()
    wide = "one => [one.scrollWidth, one.clientWidth]"
    inner, outer = section.page.locator("html").evaluate(wide)
    assert inner == outer
