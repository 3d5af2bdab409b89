"""The page of a check: the gate's words, every target, and what there is room for."""

from dataclasses import replace

import pytest
from lxml import html

from gradscope.check.options import Policy
from gradscope.check.results import CheckResult, Failure, Run, TargetResult, target_result
from gradscope.recording.finding import Finding, Verdict
from gradscope.recording.records import Site
from gradscope.report.documents.check import closing_text
from gradscope.report.html.check_page import render_check_html
from tests.nightly import some_on_push
from tests.report.conftest import ROOT, build

HOSTILE = "</script><img src=x onerror=alert(1)>.py"
SITE = Site(file=f"{ROOT}/model.py", line=9, function="forward", source="x = x.detach()")


def finding(rule="GS201", severity="error", **changes):
    values = {
        "name": "gradient-cut", "message": f"told by {rule}", "location": SITE,
        "remedy": "pass it on", "fingerprint": f"print of {rule}", "parameters": ("first.weight",),
    }  # fmt: skip
    return Finding(rule=rule, severity=severity, **(values | changes))


def run(*findings, seed=0):
    recording = build()
    recording = replace(recording, target=replace(recording.target, seed=seed))
    return Run(recording=recording, verdict=Verdict(findings=findings, ran=("GS201",)))


def check(*targets, **changes):
    values = {
        "version": "0", "command": "gradscope check a.py", "targets": targets, "policy": Policy(),
    }  # fmt: skip
    return CheckResult(**(values | changes))


def rendered(result, **options):
    return html.fromstring(render_check_html(result, **options))


def tabs(page):
    return [one.text_content() for one in page.xpath("//*[@role='tab']")]


def rows(page, title):
    (table,) = page.xpath(f"//section[h2='{title}']//table")
    return [[cell.text_content().strip() for cell in row] for row in table.xpath("tbody/tr")]


PASSED = target_result("models/good.py", [run()])
FAILED = target_result("models/bad.py", [run(finding(), seed=seed) for seed in (0, 1, 2)])
UNLOADED = TargetResult(
    name="models/gone.py",
    failures=tuple(
        Failure(what="cannot open it", cause="no such file", help="write it", seed=seed)
        for seed in (0, 1)
    ),
)


def test_the_overview_tells_every_target_and_its_outcome():
    result = check(PASSED, FAILED, UNLOADED)
    page = rendered(result)
    assert tabs(page) == ["check", "✓ good.py", "✗ bad.py", "? gone.py"]
    told = [row[:2] for row in rows(page, "Targets")]
    assert told == [
        ["passed", "models/good.py"], ["failed", "models/bad.py"],
        ["not checked", "models/gone.py"],
    ]  # fmt: skip
    assert page.xpath("//h2[contains(@class, 'verdict')]")[0].text == closing_text(result)
    # Under both seeds it is one thing that went wrong.
    assert rows(page, "Could not be checked") == [
        ["models/gone.py", "0, 1", "cannot open it: no such file", "write it"]
    ]
    ((level, rule, target, line, message, seeds),) = rows(page, "Findings")
    assert (level, rule, target) == ("error", "GS201 gradient-cut", "models/bad.py")
    assert (line, message, seeds) == ("model.py:9", "told by GS201", "all 3")


def test_every_name_of_a_target_opens_its_tab():
    page = rendered(check(PASSED, FAILED))
    for button in page.xpath("//button[@data-tab]"):
        tab = page.get_element_by_id(f"panel-{button.get('data-tab')}")
        assert tab.xpath(".//h1")[0].text == button.text_content()


def test_known_findings_stand_apart():
    (item,) = FAILED.findings
    known = replace(FAILED, findings=(replace(item, is_known=True),))
    page = rendered(check(known))
    assert not page.xpath("//h2[text()='Findings']")
    assert len(rows(page, "Known findings")) == 1
    assert tabs(page)[1] == "✓ bad.py"
    assert "known" in page.xpath("//*[@class='mark']")[0].text_content()


def test_what_is_worse_than_the_baseline_is_told():
    (item,) = FAILED.findings
    worse = replace(FAILED, findings=(replace(item, worsened="decades 5 instead of 2"),))
    ((*_, told),) = rows(rendered(check(worse)), "Findings")
    assert told == "now worse: decades 5 instead of 2"


def test_a_finding_of_another_seed_is_shown_by_its_own_run():
    target = target_result("a.py", [run(), run(finding(), finding("GS203", "warning"), seed=1)])
    page = rendered(check(target))
    facts = {one[0].text: one[1].text for one in page.xpath("//dl[@class='facts']/div")}
    assert "seed 1" in facts["seeds"]
    marks = [one.text_content() for one in page.xpath("//*[@class='mark']")]
    assert len(marks) == 2 and all("1 of 2: 1" in mark for mark in marks)
    (button, *_) = page.xpath("//button[contains(@class, 'select')]")
    assert button.get("data-module") is not None


def test_without_a_single_run_there_is_a_page():
    page = rendered(check(UNLOADED))
    assert "Could not be checked." in page.text_content()
    warnings = page.xpath("//main//p[@class='warning']")
    assert [one.text for one in warnings] == ["cannot open it: no such file — write it"]


def test_seeds_that_could_not_be_judged_are_told_beside_those_that_were():
    failure = Failure(what="backward did not end", seed=7)
    page = rendered(check(replace(FAILED, failures=(failure,))))
    warnings = page.xpath("//main//p[@class='warning']")
    assert [one.text for one in warnings] == ["seed 7: backward did not end"]
    assert tabs(page) == ["check", "? models/bad.py".replace("models/", "")]


def test_limits_without_a_module_and_stale_entries_are_told():
    page = rendered(check(PASSED, unmatched=("blokcs.*",), stale=("GS201 in a.py",)))
    told = " ".join(one.text for one in page.xpath("//p[@class='warning']"))
    assert "blokcs.*" in told and "GS201 in a.py" in told


@pytest.mark.parametrize(
    ("policy", "text"),
    some_on_push([
        (Policy(), "errors fail"),
        (Policy(fail_level="note"), "errors and warnings and notes fail"),
        (Policy(max_warnings=1, exit_zero=True),
         "errors fail; 1 warning allowed; --exit-zero lets findings pass"),
    ], 2),
)  # fmt: skip
def test_the_gate_is_told_in_words(policy, text):
    facts = [
        one.text_content() for one in rendered(check(PASSED, policy=policy)).xpath("//dl/div/dd")
    ]
    assert text in facts


def test_without_room_the_targets_with_findings_keep_their_pictures():
    result = check(PASSED, FAILED)
    whole = rendered(result)
    names = "count(//article[@id='panel-{}']//details[contains(@class, 'chart')])"
    assert whole.xpath(names.format(1)) == whole.xpath(names.format(2)) > 0
    size = len(whole.get_element_by_id("data-2").text)
    tight = rendered(result, size_budget=size)
    assert tight.xpath(names.format(1)) == 0 < tight.xpath(names.format(2))
    assert "Omitted" in tight.get_element_by_id("panel-1").text_content()
    assert "Omitted" not in tight.get_element_by_id("panel-2").text_content()
    none = rendered(result, size_budget=0)
    assert none.xpath(names.format(2)) == 0
    assert not none.xpath("//article[@id='panel-2']//button[contains(@class, 'select')]")


def test_names_are_text():
    target = target_result(HOSTILE, [run(finding(message=HOSTILE))])
    page = rendered(check(target))
    assert not page.xpath("//img")
    assert rows(page, "Targets")[0][1] == HOSTILE
    assert page.xpath("//article//h1")[1].text == HOSTILE
