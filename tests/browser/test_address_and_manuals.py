"""The address of a page shows what is open on it, and rules open their manuals."""

import re
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from gradscope.report.html.page import manuals_of, render_page
from gradscope.report.html.report_page import tab_of
from tests.browser.recordings import hostile_report, sample_report
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


def pick(page, layer):
    page.keyboard.press("/")
    page.locator(".find input").fill(layer)
    page.keyboard.press("Enter")


@pytest.mark.nightly
def test_back_undoes_tabs_and_selections_and_a_link_reopens_the_view(show, stack):
    page = show(tab_of(stack, "first"), tab_of(stack, "second & third"))
    start = page.url
    page.get_by_role("tab", name="second").click()
    pick(page, "layers.12")
    expect(page.locator(".crumbs")).to_have_text(re.compile("12$"))
    link = page.url
    assert link.endswith("#tab=second+%26+third&layer=layers.12")
    pick(page, "head")
    page.go_back()
    expect(page.locator(".crumbs")).to_have_text(re.compile("12$"))
    page.go_back()
    expect(page.locator(".selected")).to_be_hidden()
    expect(page.locator("#panel-1")).to_be_visible()
    page.go_back()
    expect(page.locator("#panel-0")).to_be_visible()
    assert page.url == start
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator("#panel-1")).to_be_visible()
    expect(page.locator(".crumbs")).to_have_text(re.compile("12$"))
    page.go_back()
    page.wait_for_url("about:blank")


@pytest.mark.nightly
def test_a_row_of_a_table_is_part_of_the_address(show, stack):
    page = show(tab_of(stack))
    page.locator("[data-chart=parameters]").scroll_into_view_if_needed()
    rows = page.locator("[data-chart=parameters] td.name")
    rows.get_by_text("layers.3.weight", exact=True).click()
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    table = page.locator("[data-chart=parameters]")
    table.scroll_into_view_if_needed()
    expect(table.locator("tr.chosen td.name")).to_have_text("layers.3.weight")


@pytest.mark.nightly
def test_a_pinned_tab_stays_beside_the_open_one_and_shares_its_layer(show, stack):
    page = show(tab_of(stack, "one"), tab_of(stack, "two"), tab_of(stack, "three"), width=1400)
    page.get_by_role("button", name="pin", exact=True).click()
    page.get_by_role("tab", name="two").click()
    for panel in (0, 1):
        expect(page.locator(f"#panel-{panel} [data-chart=depth] .main-svg").first).to_be_visible()
    boxes = [page.locator(f"#panel-{panel}").bounding_box() for panel in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    pick(page, "layers.12")
    table = page.locator("#panel-0 [data-chart=parameters]")
    table.scroll_into_view_if_needed()
    expect(table.locator("tr.in td.name").first).to_contain_text("layers.12")
    width = page.locator("#panel-0 .main-svg").first.evaluate("one => one.clientWidth")
    assert width < boxes[0]["width"]
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator("#panel-0")).to_be_visible()
    expect(page.locator("#panel-1")).to_be_visible()
    page.get_by_role("button", name="unpin").click()
    expect(page.locator("#panel-0")).to_be_hidden()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "end", some_on_push(["#tab=9&layer=none&step=x", "#rule=GS999", "#main", "#%"], {0})
)
def test_an_address_of_nothing_on_the_page_shows_its_start(show, stack, end):
    page = show(tab_of(stack))
    address = page.url
    page.goto("about:blank")
    page.goto(f"{address}{end}")
    expect(page.locator("#panel-0")).to_be_visible()
    expect(page.locator(".selected")).to_be_hidden()


@pytest.mark.nightly
def test_layers_of_hostile_names_are_reopened(show):
    page = show(tab_of(hostile_report()))
    page.locator("[data-chart=parameters] summary").click()
    page.locator("[data-chart=parameters] td.name").first.click()
    crumbs = page.locator(".crumbs").text_content()
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    expect(page.locator(".crumbs")).to_have_text(crumbs)


def test_a_code_opens_the_manual_and_escape_closes_it(show, stack):
    page = show(tab_of(stack))
    code = stack.findings[0].rule
    page.locator(".finding").get_by_role("button", name=code).click()
    manual = page.get_by_role("dialog")
    expect(manual.get_by_role("heading", name="How to fix it")).to_be_visible()
    expect(page.locator(".finding").first).to_have_attribute("open", "")
    assert page.url.endswith(f"#rule={code}")
    page.keyboard.press("Escape")
    expect(manual).to_have_count(0)
    page.go_back()
    expect(manual).to_be_visible()
    page.get_by_label("Close the manual").locator("visible=true").click()
    expect(manual).to_have_count(0)


@pytest.mark.nightly
def test_codes_in_tables_open_the_manual_and_select_no_row(show, stack):
    page = show(tab_of(stack))
    table = page.locator("[data-chart=parameters]")
    table.scroll_into_view_if_needed()
    table.locator("button.flag").first.click()
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.locator(".selected")).to_be_hidden()


def test_a_page_holds_the_manuals_of_its_findings_within_a_budget(stack):
    words = tab_of(stack).texts
    (code,) = {card.rule for card in words.cards}
    assert [manual.code for manual in manuals_of([words])] == [code]
    assert manuals_of([words], budget=100) == []
    card = words.cards[0]
    unknown = replace(words, cards=(replace(card, rule="GS999"), card))
    assert [manual.code for manual in manuals_of([unknown])] == [code]
