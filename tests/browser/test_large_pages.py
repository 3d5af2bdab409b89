"""Large pages stay small enough to be sent, and work: 10,000 tensors, 2,000 steps of 300 layers."""

import re

import pytest
from playwright.sync_api import expect

from gradscope.report.html.report_page import render_html
from tests.browser.large import large_inspection, large_run

LIMIT = 8_000_000
PATIENCE = 60_000
"""Milliseconds; how fast a page is, `python tests/benchmarks pages` prints."""


@pytest.fixture
def opened(open_page, tmp_path):
    """Writes a report's page, which has to be small, and opens it."""

    def opened(report):
        path = tmp_path / "report.html"
        path.write_text(render_html([report]), encoding="utf-8")
        assert path.stat().st_size <= LIMIT
        page = open_page(path)
        page.set_default_timeout(PATIENCE)
        return page

    return opened


def come_to(page, chart):
    """Bring a chart into view, unfolded, and wait until it is painted."""
    section = page.locator(f"#panel-0 [data-chart={chart}]")
    if section.get_attribute("open") is None:
        section.locator("summary").click()
    section.scroll_into_view_if_needed()
    expect(section.locator(".canvas > *").first).to_be_visible(timeout=PATIENCE)
    return section


@pytest.mark.nightly
def test_page_of_ten_thousand_tensors(opened):
    report = large_inspection(250)
    assert len(report.tensors) >= 10_000
    page = opened(report)
    for chart in ("depth", "modules", "inside"):
        come_to(page, chart)
    table = come_to(page, "tensors")
    assert table.locator("tbody tr").count() < 200  # those in view, not all
    parameters = come_to(page, "parameters")
    parameters.get_by_role("searchbox").fill("249.projections.9.bias")
    name = parameters.locator("tbody tr:not(.space) td.name")
    expect(name).to_have_text(re.compile(r"249\.projections\.9\.bias$"))
    name.click()
    expect(page.locator(".crumbs")).to_have_text(re.compile(r"249.*9"))


@pytest.mark.nightly
def test_page_of_two_thousand_steps(opened):
    page = opened(large_run(2000, 300))
    come_to(page, "curves")
    come_to(page, "heatmap")
    step = come_to(page, "timeline").get_by_label("Step", exact=True)
    expect(step).to_have_value("1000")  # of the finding
    page.get_by_role("button", name="show in charts").click()
    expect(page.locator(".crumbs")).to_have_text(re.compile("step 1,000"))
