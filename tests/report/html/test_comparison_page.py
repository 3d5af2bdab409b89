"""The page of a comparison: what it tells of each side."""

from lxml import html

from gradscope.comparison.tolerance import Tolerance
from gradscope.report.documents.comparison_phrasing import verdict_text
from gradscope.report.html.comparison_page import render_comparison_html
from tests.comparison.sides import GivenGradient, compared, finding, of_run, of_step, reported

HOSTILE = "</script><img src=x onerror=alert(1)>"


def rendered(comparison):
    return html.fromstring(render_comparison_html(comparison))


def facts(page, tab=0):
    found = page.xpath(f"//article[@id='panel-{tab}']//dl[@class='facts']/div")
    return {one[0].text: one[1].text for one in found}


def texts(page, path):
    return [" ".join(one.text_content().split()) for one in page.xpath(path)]


def test_two_sides_are_one_tab():
    comparison = compared(
        of_step({"a.weight": 1.0}, loss=2.0), of_step({"a.weight": 3.0}, loss=4.0)
    )
    page = rendered(comparison)
    assert not page.xpath("//*[@role='tab']")
    assert texts(page, "//h2[contains(@class, 'verdict')]") == [verdict_text(comparison)]
    told = facts(page)
    assert told["loss"].startswith("2 → 4") and told["norm"].startswith("1 → 3")
    reasons = texts(page, "//ul[@class='reasons']/li")
    assert len(reasons) == 2 and "1 gradient norm moved by more than 10 %" in reasons[0]


def test_equal_sides_are_green():
    one = of_step({"a.weight": 1.0})
    page = rendered(compared(one, one))
    (verdict,) = page.xpath("//h2[contains(@class, 'verdict')]")
    assert "clean" in verdict.get("class") and verdict.text == "Identical."


def test_a_gate_that_fails_is_red():
    one = of_step({"a.weight": 1.0, "b.weight": 1.0})
    other = of_step({"a.weight": GivenGradient(reach="none"), "b.weight": 1.0})
    for is_check, level in ((True, "error"), (False, "warning")):
        page = rendered(compared(one, other, is_check=is_check))
        assert level in page.xpath("//h2[contains(@class, 'verdict')]/@class")[0]


def test_findings_stand_with_what_became_of_them():
    one = of_step({"a.weight": 1.0})
    went, came, stayed = (finding(rule) for rule in ("GS201", "GS202", "GS203"))
    page = rendered(compared(reported(one, went, stayed), reported(one, came, stayed)))
    codes = texts(page, "//details//summary//*[contains(@class, 'code')]")
    marks = texts(page, "//details//*[@class='mark']")
    assert list(zip(codes, marks, strict=True)) == [
        ("GS202", "new"), ("GS201", "gone"), ("GS203", "still there"),
    ]  # fmt: skip
    mended = page.xpath("//details[contains(@class, 'mended')]//*[contains(@class, 'code')]/text()")
    assert mended == ["GS201"]


def test_several_sides_have_an_overview_and_a_tab_each():
    sides = [of_step({"a.weight": norm}, loss=norm) for norm in (1.0, 1.01, 9.0)]
    comparison = compared(*sides, names=["one.gradscope", "two.gradscope", "three.gradscope"])
    page = rendered(comparison)
    assert texts(page, "//*[@role='tab']") == ["all sides", "B two.gradscope", "C three.gradscope"]
    rows = texts(page, "//section[h2='Sides']//tbody/tr/td[1]")
    assert rows == ["A", "B", "C"]
    assert texts(page, "//article[@id='panel-0']//ul[@class='reasons']/li")[0].startswith("C: ")
    # What is beyond the tolerance in C is no matter of B.
    assert "within the tolerance" in texts(page, "//article[@id='panel-1']//h2")[0]
    assert "the tolerance" in texts(page, "//article[@id='panel-2']//h2")[0]
    opened = page.xpath("//section[h2='Sides']//button/@data-tab")
    assert [texts(page, f"//article[@id='panel-{at}']//h1")[0] for at in opened] == [
        "one.gradscope → two.gradscope", "one.gradscope → three.gradscope",
    ]  # fmt: skip


def test_what_is_known_to_differ_is_a_table():
    one = of_step({"a.weight": GivenGradient(norm=1.0)})
    other = of_step({"a.weight": GivenGradient(norm=1.0, dtype="bfloat16")})
    page = rendered(compared(one, other))
    rows = texts(page, "//section[h2='Known to differ']//tbody/tr")
    assert rows == ["dtypefloat32bfloat16"]


def test_runs_have_curves_and_steps_have_none():
    run = of_run({"a.weight": [1.0, 2.0]}, [3.0, 2.0])
    names = "//details[contains(@class, 'chart')]/@data-chart"
    assert "compared-curves" in rendered(compared(run, run)).xpath(names)
    step = of_step({"a.weight": 1.0})
    assert "compared-curves" not in rendered(compared(step, step)).xpath(names)


def test_without_room_the_sides_that_are_worse_keep_their_pictures():
    sides = [of_step({"a.weight": norm, "b.weight": 1.0}) for norm in (1.0, 1.01, 9.0)]
    comparison = compared(*sides)
    whole = rendered(comparison)
    names = "count(//article[@id='panel-{}']//details[contains(@class, 'chart')])"
    assert all(whole.xpath(names.format(at)) for at in range(3))
    room = sum(len(whole.get_element_by_id(f"data-{at}").text) for at in (0, 2))
    tight = html.fromstring(render_comparison_html(comparison, size_budget=room))
    assert [bool(tight.xpath(names.format(at))) for at in range(3)] == [True, False, True]
    assert "Omitted" in tight.get_element_by_id("panel-1").text_content()


def test_what_cannot_be_compared_is_a_page_too():
    one, other = of_step({"a.weight": 1.0}), of_step({"b.other": GivenGradient(dims=(3,))})
    page = rendered(compared(one, other))
    assert "no parameter in common" in page.text_content()


def test_names_are_text_and_the_page_is_the_same_every_time():
    side = of_step({f"{HOSTILE}.weight": 1.0, "b.weight": 2.0})
    comparison = compared(side, side, names=[HOSTILE, "b"], tolerance=Tolerance(norm=0.5))
    page = rendered(comparison)
    assert not page.xpath("//img") and HOSTILE in page.text_content()
    assert render_comparison_html(comparison) == render_comparison_html(comparison)
