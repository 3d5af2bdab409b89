"""A report's page as a reader meets it: findings, tables, tabs, keys, print."""

import re
from itertools import pairwise

import pytest
from playwright.sync_api import expect

from gradscope.report.html.page import render_page
from gradscope.report.html.report_page import run_tabs, tab_of
from tests.browser.recordings import HOSTILE, hostile_report, sample_report
from tests.browser.test_run_page import run_report
from tests.nightly import some_on_push


@pytest.fixture(scope="module")
def stack():
    return sample_report("vanishing_stack.py")


@pytest.fixture
def show(open_page, tmp_path):
    def show(*tabs, **given):
        path = tmp_path / "report.html"
        path.write_text(render_page(tabs, "a report"), encoding="utf-8")
        return open_page(path, **given)

    return show


def test_a_finding_stands_with_its_line_and_selects_its_layer(show, stack):
    page = show(tab_of(stack))
    expect(page.locator(".verdict")).to_have_text(re.compile("Found 1 error"))
    expect(page.locator(".finding .cause code")).to_have_text("    x = torch.sigmoid(layer(x))")
    expect(page.locator(".selected")).to_be_hidden()
    page.get_by_role("button", name="show in charts").click()
    expect(page.locator(".crumbs")).to_have_text(re.compile("layers"))
    page.keyboard.press("Escape")
    expect(page.locator(".selected")).to_be_hidden()


@pytest.mark.nightly
def test_the_table_holds_the_recordings_numbers(show, stack):
    page = show(tab_of(stack))
    table = page.locator("[data-chart=parameters]")
    table.scroll_into_view_if_needed()
    norms = table.locator("tbody tr:not(.space) td.number:nth-child(5)")
    expect(norms.first).to_be_visible()
    titles = norms.evaluate_all("cells => cells.map(cell => cell.title)")
    assert [float(text) for text in titles] == [
        row.grad.norm for row in stack.parameters[: len(titles)]
    ]


@pytest.mark.nightly
def test_a_table_is_sorted_and_filtered(show, stack):
    page = show(tab_of(stack))
    table = page.locator("[data-chart=parameters]")
    table.scroll_into_view_if_needed()
    first = table.locator("tbody tr:not(.space)").first.locator("td.name")
    by_norm = sorted(stack.parameters, key=lambda row: row.grad.norm)
    heading = table.get_by_role("button", name="gradient norm")
    heading.click()
    expect(first).to_have_text(by_norm[-1].name)
    heading.click()
    expect(first).to_have_text(by_norm[0].name)
    heading.click()
    expect(first).to_have_text(stack.parameters[0].name)
    table.get_by_role("searchbox").fill("layers.7 bias")
    expect(table.locator("tbody tr:not(.space)")).to_have_count(1)
    expect(table.locator(".controls")).to_contain_text("1 of 42 rows")


@pytest.mark.nightly
def test_a_row_selects_its_layer_for_every_table(show, stack):
    page = show(tab_of(stack))
    tables = page.locator(".chart.table")
    tables.nth(0).scroll_into_view_if_needed()
    tables.nth(0).get_by_text("layers.3.weight", exact=True).click()
    expect(page.locator(".crumbs")).to_have_text("SigmoidStack \u203a layers \u203a 3")
    tables.nth(1).scroll_into_view_if_needed()
    marked = tables.nth(1).locator("tr.in")
    expect(marked).to_have_count(1)
    expect(marked).to_contain_text("layers.3")


@pytest.mark.nightly
def test_layers_are_found_by_keys_alone(show, stack):
    page = show(tab_of(stack))
    page.keyboard.press("/")
    page.keyboard.type("layers.12")
    page.keyboard.press("Enter")
    expect(page.locator(".crumbs")).to_have_text("SigmoidStack \u203a layers \u203a 12")


@pytest.mark.nightly
def test_a_search_without_a_hit_says_so(show, stack):
    page = show(tab_of(stack))
    page.keyboard.press("/")
    page.keyboard.type("nowhere")
    page.keyboard.press("Enter")
    told = page.locator(".no-hit")
    expect(told).to_have_text("No layer has “nowhere” in its name")
    page.keyboard.press("Backspace")
    expect(told).to_be_hidden()


@pytest.mark.nightly
def test_tabs_switch_by_keys_between_reports(show, stack):
    page = show(tab_of(stack, "first"), tab_of(stack, "second"))
    page.get_by_role("tab", name="first").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="second")).to_be_focused()
    expect(page.locator("#panel-0")).to_be_hidden()
    expect(page.locator("#panel-1 .verdict")).to_be_visible()


@pytest.mark.nightly
def test_names_are_text_whatever_they_are_made_of(show):
    page = show(tab_of(hostile_report()))
    assert page.evaluate("window.harmed") is None
    expect(page.locator("h1")).to_have_text(HOSTILE)
    for section in page.locator(".chart").all():
        section.evaluate("one => { one.open = true }")
        section.scroll_into_view_if_needed()
        page.wait_for_timeout(100)
    expect(page.locator("[data-chart=parameters] td.name").first).to_contain_text(HOSTILE)
    assert page.evaluate("window.harmed") is None
    # Nothing of the name has become an element.
    assert page.locator("b.hostile, img[src=x]").count() == 0


@pytest.mark.parametrize("dark", some_on_push([False, True], {1}))
def test_every_picture_is_drawn_in_light_and_dark(show, stack, dark):
    page = show(tab_of(stack), dark=dark)
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background)[:3])) < 200) is dark
    for section in page.locator(".chart").all():
        section.scroll_into_view_if_needed()
        expect(section.locator(".canvas > *").first).to_be_visible()
    assert page.locator(".failure").count() == 0


@pytest.mark.nightly
def test_what_is_printed_is_all_of_it_in_light(show, stack):
    page = show(tab_of(stack), dark=True)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert all(page.locator("details").evaluate_all("all => all.map(one => one.open)"))
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    drawn = page.locator(".canvas").evaluate_all("all => all.map(one => one.children.length)")
    assert all(drawn)


@pytest.mark.nightly
@pytest.mark.parametrize("pinned", [True, False])
def test_what_is_open_is_printed_with_whole_tables_in_the_width_of_paper(show, stack, pinned):
    """Two tabs beside each other are both printed, one after the other."""
    page = show(tab_of(stack, "one"), tab_of(stack, "two"), width=1400)
    if pinned:
        page.get_by_role("button", name="pin").click()
    page.get_by_role("tab", name="two").click()
    page.locator("#panel-1 .notes").first.evaluate("one => { one.open = false }")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    expect(page.locator("#panel-0")).to_be_visible(visible=pinned)
    for tab in (0, 1) if pinned else (1,):
        rows = page.locator(f"#panel-{tab} [data-chart=tensors] tbody tr:not(.space)")
        assert rows.count() == len(stack.tensors)
        widths = page.locator(f"#panel-{tab} .main-svg").evaluate_all(
            "all => all.map(one => one.getBoundingClientRect().width)"
        )
        assert widths and max(widths) <= 720
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("#panel-1 details:not([open])").count()


@pytest.mark.nightly
def test_nothing_printed_of_a_run_is_wider_than_paper(show):
    """Lines of code and events break, as paper cannot be scrolled."""
    report = run_report()
    page = show(*run_tabs(report, report.training_run), width=720)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    parts = page.locator("#panel-0 .events td, #panel-0 .snippet td, #panel-0 .summary td")
    edges = parts.evaluate_all("all => all.map(one => one.getBoundingClientRect().right)")
    assert edges and max(edges) <= 720


@pytest.mark.nightly
@pytest.mark.parametrize("tab", some_on_push([0, 1], {1}))
def test_a_narrow_page_does_not_scroll_sideways_and_breaks_no_words(show, tab):
    report = run_report()
    page = show(*run_tabs(report, report.training_run), width=420)
    if tab:
        page.get_by_role("tab").nth(tab).click()
    page.wait_for_timeout(500)
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    if not tab:
        cells = page.locator(".summary td:visible")
        heights = cells.evaluate_all("all => all.map(one => one.clientHeight)")
        assert heights and max(heights) < 60


@pytest.mark.nightly
def test_collapsed_charts_of_a_healthy_page_open_and_follow_the_selection(show):
    page = show(tab_of(sample_report("healthy_mlp.py")))
    opened = page.locator(".chart[open]")
    expect(opened).to_have_count(1)
    table = page.locator("[data-chart=parameters]")
    expect(table.locator(".gist")).to_have_text(re.compile("gradient norms from .* to"))
    table.locator("summary").click()
    expect(table.locator("td.name").first).to_be_visible()
    expect(table.locator(".gist")).to_be_hidden()
    table.locator("summary").click()
    modules = page.locator("[data-chart=modules]")
    modules.locator("summary").click()
    modules.locator("g.slice").last.click()
    table.locator("summary").click()
    expect(table.locator("tr.in").first).to_be_visible()


@pytest.mark.nightly
def test_every_open_chart_is_drawn_without_scrolling(show, stack):
    page = show(tab_of(stack))
    for section in page.locator(".chart").all():
        expect(section.locator(".canvas > *").first).to_be_attached()
    assert page.evaluate("scrollY") == 0


@pytest.mark.nightly
@pytest.mark.parametrize(("width", "is_narrow"), [(420, True), (1280, False)])
def test_names_of_rows_leave_room_for_the_chart(show, width, is_narrow):
    page = show(tab_of(sample_report("healthy_gpt.py")), width=width)
    chart = page.locator("[data-chart=magnitudes]")
    if chart.get_attribute("open") is None:
        chart.locator("summary").click()
    plot = chart.locator(".js-plotly-plot")
    plot.scroll_into_view_if_needed()
    labels = chart.locator(".ytick text").all_text_contents()
    assert labels and (max(map(len, labels)) <= 16) == is_narrow
    assert bool([one for one in labels if one.startswith("…")]) == is_narrow
    boxes = chart.locator(".ytick text").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect()).map(({top, bottom}) => [top, bottom])"
    )
    assert all(low <= top + 1 for (_, low), (top, _) in pairwise(sorted(boxes)))
    share = plot.evaluate("one => one._fullLayout._size.w / one.clientWidth")
    assert share > 0.5
    texts = chart.locator(".annotation-text").all_text_contents()
    assert bool(texts) != is_narrow
