"""The pages of clip-report, check and compare as a reader meets them."""

import math

import pytest
from playwright.sync_api import expect

from gradscope.check.options import Policy
from gradscope.check.results import CheckResult, Failure, Run, TargetResult, target_result
from gradscope.report.html.check_page import render_check_html
from gradscope.report.html.clip_tab import render_clip_html
from gradscope.report.html.comparison_page import render_comparison_html
from gradscope.rules.engine import judge
from gradscope.session.report import Report
from tests.browser.recordings import HOSTILE, hostile_report, sample_report
from tests.comparison.sides import GivenGradient, compared, of_run, of_step
from tests.nightly import some_on_push
from tests.rules.clipping.clipped_run import trained


@pytest.fixture
def show(open_page, tmp_path):
    def show(text, **given):
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        return open_page(path, **given)

    return show


def clipped():
    """The report of a run that is clipped, with norms of every kind."""
    run, weights, optimizer = trained(parameters=3)
    for size in (0.1, 2.0, 30.0, 0.0, math.nan, math.inf, 4.0, 1.0, 3.0, 5.0):
        run.zero(optimizer)
        for position, weight in enumerate(weights):
            run.backward([weight], size=size * (position + 1))
        run.clip(weights, 1.0)
        run.step(optimizer)
    recording = run.recording()
    return Report.from_recording(recording, judge(recording))


def sides():
    """A comparison in which everything happens to a parameter that can."""
    kinds = (
        (1.0, 1.05), (2.0, 9.0), (3.0, None), (None, 4.0), (0.0, 5.0), (6.0, 0.0),
        (7.0, math.nan), (math.inf, 8.0),
    )  # fmt: skip
    return [
        of_step({f"blocks.{at}.weight": given(pair[turn]) for at, pair in enumerate(kinds)})
        for turn in (0, 1)
    ]


def given(norm):
    if norm is None:
        return GivenGradient(norm=None, reach="none")
    return GivenGradient(
        norm=norm,
        reach="gradient" if norm else "zero",
        nonfinite=0 if math.isfinite(norm) else 1,
    )


def look_at_all(page):
    """Scroll through the charts of the tab that is shown, so that all are drawn."""
    for section in page.locator(".tab-panel:not([hidden]) .chart").all():
        section.scroll_into_view_if_needed()
        expect(section.locator(".canvas > *").first).to_be_visible()
    assert page.locator(".failure").count() == 0


def click(page, mark):
    """Click on a mark of a plot, which listens to the place and not to the mark."""
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_timeout(150)
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def runs():
    """Three runs, of which one has a loss that is NaN."""
    return [
        of_run({"a.weight": [1.0, 2.0, 3.0]}, losses)
        for losses in ([1.0, 2.0, 3.0], [1.0, math.nan, 2.0], [1.0, 1.0, 9.0])
    ]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("text", "dark"),
    some_on_push(
        [
            (lambda: render_clip_html([clipped()]), True),
            (lambda: render_comparison_html(compared(*sides())), False),
            (lambda: render_comparison_html(compared(*runs())), True),
        ],
        {2},
    ),
    ids=["clip", "parameters", "runs"],
)
def test_every_picture_is_drawn(show, text, dark):
    page = show(text(), dark=dark, width=700 if dark else 1280)
    for position in range(max(page.get_by_role("tab").count(), 1)):
        if position:
            page.get_by_role("tab").nth(position).click()
        look_at_all(page)


@pytest.mark.nightly
def test_small_logarithmic_axes_are_labelled_with_whole_numbers(show):
    sides = [of_step({f"blocks.{at}.weight": norm for at, norm in enumerate(norms)}) for norms in (
        (0.1, 0.3, 0.9), (0.12, 0.2, 0.5),
    )]  # fmt: skip
    page = show(render_comparison_html(compared(*sides)))
    look_at_all(page)
    labels = page.locator("[data-chart=compared-norms] .yaxislayer-above .ytick text")
    assert {"0.1", "0.2", "0.5"} <= set(labels.all_text_contents())


@pytest.mark.nightly
def test_a_step_and_a_layer_of_a_clip_are_selected(show):
    page = show(render_clip_html([clipped()]))
    look_at_all(page)
    steps = page.locator("[data-chart=clip-steps]")
    # The first strip is of what is not finite: steps 4 and 5.
    click(page, steps.locator(".scatterlayer .points path").first)
    expect(page.locator(".crumbs")).to_have_text("step 4")
    expect(steps.locator(".shapelayer path")).not_to_have_count(0)
    page.keyboard.press("Escape")
    click(page, page.locator("[data-chart=clip-shares] .barlayer .point path").first)
    expect(page.locator(".crumbs")).to_contain_text("model")
    table = page.locator("[data-chart=clip-parameters]")
    expect(table.locator("tr.chosen")).to_have_count(1)
    expect(table.locator("tr.chosen td").first).to_have_text("model.weight2")


@pytest.mark.nightly
def test_bars_stand_on_their_axis_however_many_decades_there_are(show):
    run, weights, optimizer = trained(parameters=1)
    for decade in range(-9, 5):
        for turn in range(decade + 10):
            run.zero(optimizer)
            run.backward(weights, size=(2 + turn / 10) * 10.0**decade)
            run.clip(weights, 1e9)
            run.step(optimizer)
    recording = run.recording()
    page = show(render_clip_html([Report.from_recording(recording, judge(recording))]))
    norms = page.locator("[data-chart=clip-norms]")
    norms.scroll_into_view_if_needed()
    bars = norms.locator(".barlayer .point path")
    expect(bars.first).to_be_visible()
    bottoms = bars.evaluate_all("all => all.map(one => one.getBBox()).map(b => b.y + b.height)")
    assert len(bottoms) > 5 and max(bottoms) - min(bottoms) < 1


@pytest.mark.nightly
def test_a_parameter_of_a_comparison_is_selected_in_all_pictures(show):
    page = show(render_comparison_html(compared(*sides())))
    look_at_all(page)
    norms = page.locator("[data-chart=compared-norms]")
    before = norms.locator(".scatterlayer .trace").count()
    table = page.locator("[data-chart=compared-parameters]")
    table.get_by_text("blocks.1.weight", exact=True).click()
    expect(page.locator(".crumbs")).to_contain_text("blocks.1")
    expect(norms.locator(".scatterlayer .trace")).to_have_count(before + 1)
    page.keyboard.press("Escape")
    expect(norms.locator(".scatterlayer .trace")).to_have_count(before)
    click(page, norms.locator(".subplot.xy .scatterlayer .points path").first)
    expect(table.locator("tr.chosen")).to_have_count(1)


@pytest.mark.nightly
def test_the_overview_of_a_check_opens_the_tab_of_a_target(show):
    stack = sample_report("vanishing_stack.py")
    result = CheckResult(
        version="0",
        command="gradscope check",
        policy=Policy(),
        targets=(
            target_result("stack.py", [Run(recording=stack.recording, verdict=stack.rules)]),
            TargetResult(name=HOSTILE, failures=(Failure(what=HOSTILE, help=HOSTILE),)),
        ),
    )
    page = show(render_check_html(result))
    expect(page.locator(".verdict:visible")).to_contain_text("Could not check 1 of 2 targets")
    page.locator("section.summary").get_by_role("button", name="stack.py").first.click()
    expect(page.locator("#panel-1 h1")).to_be_visible()
    expect(page.locator("#panel-0")).to_be_hidden()
    look_at_all(page)
    page.locator("#panel-1").get_by_role("button", name="show in charts").click()
    expect(page.locator(".crumbs")).to_contain_text("layers")
    page.get_by_role("tab", name="check").click()
    expect(page.locator("#panel-0 .summary").first).to_be_visible()
    assert page.evaluate("window.harmed") is None


@pytest.mark.nightly
def test_names_are_text_in_plots_too(show):
    report = hostile_report()
    named = of_step({f"{HOSTILE}.weight": 1.0, "b.weight": 2.0})
    pages = (
        render_comparison_html(compared(report, report, names=[HOSTILE, HOSTILE])),
        render_comparison_html(compared(named, of_step({f"{HOSTILE}.weight": 9.0}))),
    )
    for text in pages:
        page = show(text)
        look_at_all(page)
        assert page.evaluate("window.harmed") is None
        assert page.locator("b.hostile, img[src=x]").count() == 0


@pytest.mark.nightly
@pytest.mark.parametrize("factors", [(1e-3, 1.2e-3, 1.1e-3), (1e-20, 1e5, 1e18)])
def test_every_bar_of_the_ratios_is_seen_where_its_ratios_are(show, factors):
    """Near each other beside a band far away, and so far apart that a linear axis shows one."""
    models = [
        of_step({f"layers.{at}": given(factor**turn) for at, factor in enumerate(factors)})
        for turn in (0, 1)
    ]
    page = show(render_comparison_html(compared(*models)))
    look_at_all(page)
    section = page.locator("[data-chart=compared-spread]")
    boxes = section.locator(".bars .point path").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect()).map(box => [box.width, box.height])"
    )
    seen = [width for width, height in boxes if height > 5]
    assert seen and min(seen) > 2
    assert max(seen) < 1.5 * min(seen)
