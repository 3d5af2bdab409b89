"""The page of a training run as a reader meets it: charts linked by step and layer."""

import math
import re
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from gradscope.phrasing import short
from gradscope.recording.records import CapturedStep
from gradscope.report.html.report_page import render_html
from tests.browser.recordings import HOSTILE
from tests.report.conftest import build
from tests.report.html.charts.loops import finding, loop, report_of

STEPS = 12

PIXEL = """
([chart, axes, x, y]) => {
  const plot = document.querySelector(`[data-chart=${chart}] .js-plotly-plot`);
  const {x: left, y: top} = plot.getBoundingClientRect();
  const layout = plot._fullLayout;
  const [xaxis, yaxis] = axes.map((name) => layout[name]);
  const row = yaxis.type === 'category' ? yaxis._categories.indexOf(y) : y;
  const at = yaxis.type === 'log' ? Math.log10(row) : row;
  return [left + xaxis._offset + xaxis.c2p(x), top + yaxis._offset + yaxis.l2p(at)];
}
"""


def run_report():
    norms = [(10.0 ** -(step % 3), 1.0) for step in range(STEPS)]
    norms[5] = (math.nan, None)
    norms[7] = (0.0, math.inf)
    recording = loop([1.0 / (1 + step) for step in range(STEPS)], norms)
    look = CapturedStep(step=3, order=1, recording=build())
    late = finding(step=8, parameters=("model0.weight0",), severity="error")
    return report_of(replace(recording, captured_steps=(look,)), late)


@pytest.fixture
def show(open_page, tmp_path):
    def show(report, **given):
        path = tmp_path / "run.html"
        path.write_text(render_html([report]), encoding="utf-8")
        return open_page(path, **given)

    return show


def come_to(page, chart):
    """Bring a chart into view, and wait until it is painted."""
    section = page.locator(f"#panel-0 [data-chart={chart}]")
    section.scroll_into_view_if_needed()
    expect(section.locator(".canvas > *").first).to_be_visible()
    return section


def click(page, chart, axes, x, y):
    page.mouse.click(*page.evaluate(PIXEL, [chart, axes, x, y]))


@pytest.mark.nightly
def test_pictures_are_linked_by_step_and_layer(show):
    page = show(run_report())
    timeline = come_to(page, "timeline")
    step = timeline.get_by_label("Step", exact=True)
    expect(step).to_have_value("8")
    come_to(page, "heatmap")
    click(page, "heatmap", ["xaxis", "yaxis2"], 2, "weight1")
    expect(page.locator(".crumbs")).to_have_text(re.compile(r"model0.*step 2"))
    chosen = come_to(page, "parameters").locator("tr.chosen td.name")
    expect(chosen).to_have_text("model0.weight1")
    expect(step).to_have_value("2")
    come_to(page, "curves")
    click(page, "curves", ["xaxis", "yaxis2"], 4, 1 / 5)
    expect(page.locator(".crumbs")).to_have_text(re.compile("step 4"))
    expect(step).to_have_value("4")
    page.keyboard.press("Escape")
    page.locator("#panel-0 button.select").first.click()
    expect(page.locator(".crumbs")).to_have_text(re.compile(r"model0.*step 8"))


@pytest.mark.nightly
def test_the_history_of_a_selected_layer_is_a_line_among_the_curves(show):
    page = show(run_report())
    come_to(page, "curves")
    come_to(page, "heatmap")
    lines = """() => document.querySelector('[data-chart=curves] .js-plotly-plot').data
        .filter((trace) => trace.name?.startsWith('weight'))
        .map((trace) => [trace.name, trace.y])"""
    assert page.evaluate(lines) == []
    click(page, "heatmap", ["xaxis", "yaxis2"], 2, "weight0")
    expect(page.locator(".crumbs")).to_have_text(re.compile("model0"))
    ((name, norms),) = page.evaluate(lines)
    assert name == "weight0"
    assert norms == [
        None if step in (5, 7) else pytest.approx(10.0 ** -(step % 3)) for step in range(STEPS)
    ]
    page.locator(".crumbs button", has_text="model0").click()
    come_to(page, "curves").get_by_text("seconds", exact=True).click()
    assert page.evaluate(lines) == []
    page.keyboard.press("Escape")


@pytest.mark.nightly
def test_keys_go_through_the_steps(show):
    page = show(run_report())
    timeline = come_to(page, "timeline")
    step = timeline.get_by_label("Step", exact=True)
    timeline.locator(".events").focus()
    for key, value in (("ArrowRight", "9"), ("ArrowLeft", "8"), ("End", "11"), ("Home", "0")):
        page.keyboard.press(key)
        expect(step).to_have_value(value)
    expect(page.locator(".crumbs")).to_have_text("step 0")
    expect(timeline.locator(".events tbody tr .word")).to_have_text(
        ["zero", "forward, backward", "step"]
    )
    step.fill("7")
    step.press("Enter")
    expect(timeline.locator(".events b.broken")).to_have_text(["inf"])
    timeline.locator(".lane").click()
    expect(step).to_have_value("8")


def test_the_numbers_on_the_page_are_the_recordings(show):
    report = run_report()
    page = show(report)
    timeline = come_to(page, "timeline")
    timeline.locator(".events").focus()
    page.keyboard.press("Home")
    for at, window in enumerate(report.training_run.steps):
        loss = timeline.locator(".events tbody tr:nth-child(2) b").first
        told = loss.get_attribute("title")
        assert float(told) == window.loss, at
        page.keyboard.press("ArrowRight")
    come_to(page, "heatmap")
    drawn = page.evaluate(
        "() => document.querySelector('[data-chart=heatmap] .js-plotly-plot').data"
        ".find((trace) => trace.name === 'gradient norm').customdata[0]"
    )
    norms = [short(10.0 ** -(step % 3)) for step in range(STEPS)]
    assert drawn == ["" if step in (5, 7) else norm for step, norm in enumerate(norms)]
    curves = come_to(page, "curves")
    page.mouse.move(*page.evaluate(PIXEL, ["curves", ["xaxis", "yaxis2"], 6, 1 / 7]))
    expect(curves.locator(".hovertext").first).to_contain_text(f"loss {short(1 / 7, 6)}")


@pytest.mark.nightly
def test_two_steps_are_compared_and_a_link_reopens_them(show):
    norms = [(1.0, 1.0), (1.0, 1.0), (0.5, 1e-3), (2.0, 1.0)]
    page = show(report_of(loop([1.0] * len(norms), norms), finding(step=2)))
    section = come_to(page, "two-steps")
    section.get_by_label("First step").fill("1")
    section.get_by_label("First step").press("Enter")
    section.get_by_label("Second step").fill("2")
    section.get_by_label("Second step").press("Enter")
    rows = section.locator("tbody tr:not(.space)")
    told = [["weight1", "1.00", "0.00100", "0.00100"], ["weight0", "1.00", "0.500", "0.500"]]
    assert [row.locator("td").all_inner_texts() for row in rows.all()] == told
    rows.first.click()
    expect(page.locator(".crumbs")).to_have_text("model0 · step 2 · compared with step 1")
    assert re.search(r"#layer=model0&parameter=1&base=1&step=2$", page.url)
    page.reload()
    section = come_to(page, "two-steps")
    expect(section.locator("tr.chosen td.name")).to_have_text("weight1")
    assert [row.locator("td").all_inner_texts() for row in rows.all()] == told
    come_to(page, "curves")
    lines = page.evaluate(
        """() => document.querySelector('[data-chart=curves] .js-plotly-plot').data
        .filter((trace) => trace.name === 'weight1').map((trace) => trace.y)"""
    )
    assert lines == [pytest.approx([1.0, 1.0, 1e-3, 1.0])]


@pytest.mark.nightly
def test_a_missing_gradient_is_told_from_an_unmeasured_one(show):
    recording = loop([1.0] * 3, [(1.0, 1.0), (1.0, None), (2.0, 1.0)])
    stats = tuple(one for one in recording.parameter_stats if (one.step, one.parameter) != (2, 1))
    page = show(report_of(replace(recording, parameter_stats=stats), finding(step=2)))
    section = come_to(page, "two-steps")
    for label, step in (("First step", "1"), ("Second step", "2")):
        section.get_by_label(label).fill(step)
        section.get_by_label(label).press("Enter")
    rows = section.locator("tbody tr:not(.space)")
    assert [row.locator("td").all_inner_texts() for row in rows.all()] == [
        ["weight0", "1.00", "2.00", "2.00"],
        ["weight1", "no gradient", "—", "—"],
    ]


@pytest.mark.nightly
def test_the_last_measured_step_is_compared_at_first(show):
    recording = loop([1.0] * 4, [(1.0, 2.0), (1.0, 2.0), (3.0, 4.0), (5.0, 6.0)])
    stats = tuple(one for one in recording.parameter_stats if one.step < 3)
    page = show(report_of(replace(recording, parameter_stats=stats)))
    page.get_by_text("Two steps compared").click()
    section = come_to(page, "two-steps")
    headers = section.locator("thead th").all_inner_texts()
    assert [text for text in headers if "step" in text] == ["step 0", "step 2"]


HEAT_CELLS = """() => {
  const plot = document.querySelector('[data-chart=heatmap] .js-plotly-plot');
  const trace = plot.data.find(({ name }) => name === 'gradient norm');
  return { edges: trace.x, texts: trace.text[0], steps: trace.meta.steps, norms: trace.z[0] };
}"""
ZOOM = """(range) => Plotly.relayout(
  document.querySelector('[data-chart=heatmap] .js-plotly-plot'), { 'xaxis.range': range })"""


@pytest.mark.nightly
def test_a_zoomed_heatmap_shows_finer_columns_and_two_steps_are_single_ones(show):
    norms = [(10.0 ** (step % 7), 1.0) for step in range(2100)]
    page = show(report_of(loop([1.0] * len(norms), norms), finding(step=2)))
    section = come_to(page, "heatmap")
    resolution = section.locator(".resolution")
    expect(resolution).to_contain_text("a column covers up to 5 steps. Zoom in for single steps.")
    assert len(page.evaluate(HEAT_CELLS)["norms"]) == 420
    page.evaluate(ZOOM, [999.5, 1099.5])
    expect(resolution).to_contain_text("each step has a column")
    found = page.evaluate(HEAT_CELLS)
    assert found["steps"] == list(range(1000, 1100))
    assert found["texts"][:2] == ["step 1,000", "step 1,001"]
    assert found["norms"] == pytest.approx([step % 7 for step in range(1000, 1100)], abs=1e-3)
    page.evaluate(ZOOM, [-0.5, 999.5])
    expect(resolution).to_contain_text("up to 2 steps")
    found = page.evaluate(HEAT_CELLS)
    assert found["edges"][:3] == [-0.5, 1.5, 3.5]
    largest = [max(step % 7, (step + 1) % 7) for step in range(0, 1000, 2)]
    assert found["norms"] == pytest.approx(largest, abs=1e-3)
    section = come_to(page, "two-steps")
    for label, step in (("First step", "1001"), ("Second step", "1004")):
        section.get_by_label(label).fill(step)
        section.get_by_label(label).press("Enter")
    headers = section.locator("thead th").all_inner_texts()
    assert [text for text in headers if "step" in text] == ["step 1,001", "step 1,004"]


@pytest.mark.nightly
def test_a_look_opens_from_the_table(show):
    page = show(run_report())
    page.get_by_role("button", name="3", exact=True).click()
    expect(page.get_by_role("tab", name="step 3")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#panel-1 h1")).to_be_visible()


@pytest.mark.nightly
def test_names_are_shown_as_text(show):
    report = run_report()
    recording = report.recording
    parameters = tuple(replace(one, name=f"{HOSTILE}{one.index}") for one in recording.parameters)
    modules = tuple(replace(one, path=f"{HOSTILE}{one.index}") for one in recording.modules)
    optimizers = tuple(replace(one, name=HOSTILE) for one in recording.evidence)
    events = tuple(replace(one, subject=HOSTILE) for one in recording.events)
    target = replace(recording.target, name=HOSTILE, loss=HOSTILE)
    hostile = replace(
        recording,
        parameters=parameters,
        modules=modules,
        evidence=optimizers,
        target=target,
        events=events,
    )
    loud = finding(step=5, message=HOSTILE, parameters=(f"{HOSTILE}0",), remedy=HOSTILE)
    page = show(report_of(hostile, loud), dark=True, width=700)
    for chart in ("curves", "heatmap", "timeline", "parameters"):
        come_to(page, chart)
    assert page.evaluate("() => globalThis.harmed") is None
    assert page.locator("img, b.hostile").count() == 0
    expect(page.locator(".events .name").first).to_have_text(HOSTILE)
    labels = page.locator("[data-chart=heatmap] .yaxislayer-above .y2tick text")
    assert "</script>" in labels.first.text_content()
