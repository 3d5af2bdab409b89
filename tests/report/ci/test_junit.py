from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from gradscope.check.options import Policy
from gradscope.phrasing import printable
from gradscope.recording.finding import IGNORED, SkippedRule, Verdict
from gradscope.report.ci.junit import render_junit
from tests.report.ci.conftest import (
    checked,
    failures,
    finding,
    healthy,
    outside,
    real,
    result_of,
    seeds,
    target_with,
)

SCHEMA = etree.XMLSchema(etree.parse(Path(__file__).parents[2] / "data/junit-10.xsd"))


def suites(result):
    """Parse and validate a report, and count again what it says to hold."""
    root = etree.fromstring(render_junit(result).encode())
    SCHEMA.assertValid(root)
    for path in ("failure", "error", "skipped"):
        for suite in root:
            name = path if path == "skipped" else f"{path}s"
            assert int(suite.get(name)) == len(suite.findall(f"testcase/{path}"))
    for name in ("tests", "failures", "errors"):
        assert int(root.get(name)) == sum(int(suite.get(name)) for suite in root)
    assert int(root.get("tests")) == len(root.findall("testsuite/testcase"))
    return list(root)


def cases(result, rule="GS201"):
    (suite, *_) = suites(result)
    return [case for case in suite if case.get("name").startswith(rule)]


def outcome(result, rule="GS201"):
    (case,) = cases(result, rule)
    return [part.tag for part in case]


def test_every_situation_is_valid_and_has_a_case_for_each_rule(situation):
    found = suites(situation)
    beside = bool(situation.stale) + bool(situation.unmatched)
    assert len(found) == len(situation.targets) + beside
    for suite, target in zip(found, situation.targets, strict=False):
        names = [case.get("name") for case in suite if not case.findall("error")]
        assert len(set(names)) == len(names)
        enabled = {item.finding.rule for item in target.findings}
        for run in target.runs:
            enabled |= {item.rule for item in run.verdict.skipped if not item.is_left_out}
            enabled |= set(run.verdict.ran)
        assert {name.partition(" ")[0] for name in names} == enabled


def test_rules_that_find_nothing_pass():
    (suite,) = suites(healthy())
    assert suite.get("name") == "sample_models/gradient_cut.py"
    assert {case.get("classname") for case in suite} == {"sample_models.gradient_cut"}
    assert suite.get("failures") == suite.get("errors") == "0"
    assert not [case for case in suite if case.findall("failure")]


def test_real_finding_says_where_what_and_how():
    (case,) = cases(real())
    (failure,) = case
    assert failure.get("type") == "GS201 gradient-cut"
    assert "detach() cuts it off" in failure.get("message")
    first, *_, last = failure.text.split("\n")
    assert first.startswith("sample_models/gradient_cut.py:23: error: ")
    assert last.startswith("  help: ")


@pytest.mark.parametrize("found", ["error", "warning", "note"])
@pytest.mark.parametrize("level", ["error", "warning", "note"])
def test_findings_below_the_fail_level_are_output(found, level):
    result = result_of(target_with(*checked(finding(severity=found))))
    result = replace(result, policy=Policy(fail_level=level))
    order = ["error", "warning", "note"]
    fails = order.index(found) <= order.index(level)
    assert outcome(result) == (["failure"] if fails else ["system-out"])


def test_too_many_warnings_fail():
    found = checked(*(finding(number, severity="warning") for number in range(3)))
    result = result_of(target_with(*found))
    assert outcome(replace(result, policy=Policy(max_warnings=3))) == ["system-out"]
    assert outcome(replace(result, policy=Policy(max_warnings=2))) == ["failure"]
    (case,) = cases(replace(result, policy=Policy(max_warnings=2)))
    assert case[0].get("message") == "3 findings"
    assert case[0].text.count("help: ") == 3


def test_without_a_gate_errors_are_failures():
    one = result_of(target_with(*checked(finding())), policy=None)
    assert outcome(one) == ["failure"]
    one = result_of(target_with(*checked(finding(severity="warning"))), policy=None)
    assert outcome(one) == ["system-out"]


def test_known_findings_are_output():
    both = (*checked(finding(0)), *checked(finding(1), is_known=True))
    (case,) = cases(result_of(target_with(*both)))
    assert [part.tag for part in case] == ["failure", "system-out"]
    assert case[1].text.startswith("src/model.py:13: known error: ")
    assert outcome(result_of(target_with(*both[1:]))) == ["system-out"]


def test_rule_that_could_not_judge_is_skipped_and_one_left_out_is_absent():
    target = target_with()
    (run,) = target.runs
    reasons = {"GS201": "no target of it", "GS202": IGNORED}
    skipped = tuple(SkippedRule(rule=rule, reason=reason) for rule, reason in reasons.items())
    run = replace(run, verdict=Verdict(ran=("GS101",), skipped=skipped))
    result = result_of(replace(target, runs=(run,)))
    (suite,) = suites(result)
    assert [case.get("name") for case in suite] == [
        "GS101 exploding-gradient",
        "GS201 gradient-cut",
    ]
    assert [part.get("message") for part in suite[1]] == ["no target of it"]
    # Another run judged it.
    both = replace(target, runs=(*target.runs, run))
    assert outcome(result_of(both)) == []


def test_what_could_not_be_judged_is_an_error():
    first, module, *_, unrun = suites(failures())
    assert [case[0].tag for case in first] == ["error", "error"]
    assert first[0][0].get("message") == (
        "could not check src/model.py:Net(3) (seeds 0, 1): the forward raised"
    )
    assert first[0][0].text == "cause: Traceback\n  line\nError: 5%\nhelp: fix it"
    assert first[0].get("classname") == "src.model:Net(3)"
    assert module[0].get("classname") == "package.module"
    assert unrun.get("errors") == "1"


def test_stale_entries_are_skipped_or_fail():
    stale = result_of(target_with(), stale=("GS201 gone", "GS105 too"))
    (case,) = suites(stale)[-1]
    assert [part.tag for part in case] == ["skipped"]
    (case,) = suites(replace(stale, stale_fails=True))[-1]
    assert [part.tag for part in case] == ["failure"]
    assert "2 entries of the baseline no longer match" in case[0].get("message")
    assert case[0].text == "GS201 gone\nGS105 too"


def test_findings_of_a_package_and_of_several_runs_say_so():
    (case,) = cases(outside())
    assert "  the cause is torch/nn/functional.py:7, outside the repository" in case[0].text
    (case,) = cases(seeds())
    assert "  seeds: 1 of 3: 1" in case.find("system-out").text


@given(st.text())
def test_messages_come_back_as_they_are_printed(text):
    one = finding(message=f"{text}!", remedy=text, parameters=())
    root = etree.fromstring(render_junit(result_of(target_with(*checked(one)))).encode())
    (failure,) = root.iter("failure")
    assert failure.get("message") == printable(f"{text}!")
    assert failure.text.endswith(f"\n  help: {printable(text)}")


def test_the_same_result_gives_the_same_text():
    assert render_junit(real()) == render_junit(real())
    assert "time" not in suites(real())[0].attrib
