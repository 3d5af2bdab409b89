import json
from dataclasses import replace
from pathlib import Path

import jsonschema

from gradscope.report.ci.gitlab import render_gitlab
from tests.report.ci.conftest import (
    checked,
    failures,
    finding,
    healthy,
    many,
    outside,
    real,
    result_of,
    seeds,
    target_with,
)

SCHEMA = json.loads((Path(__file__).parents[2] / "data/gitlab-code-quality.json").read_text())


def issues(result):
    """Parse and validate a report."""
    text = render_gitlab(result)
    text.encode()
    found = json.loads(text, parse_constant=lambda name: 1 / 0)
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    return found


def test_every_situation_holds_the_contract(situation):
    found = issues(situation)
    fingerprints = [issue["fingerprint"] for issue in found]
    assert len(set(fingerprints)) == len(fingerprints)
    counted = sum(not item.is_known for target in situation.targets for item in target.findings)
    assert len([issue for issue in found if issue["check_name"] != "gradscope"]) == counted


def test_nothing_found_is_an_empty_array():
    assert issues(healthy()) == []


def test_known_findings_are_left_out():
    result = result_of(target_with(*checked(finding(0)), *checked(finding(1), is_known=True)))
    assert [issue["location"]["lines"]["begin"] for issue in issues(result)] == [12]


def test_real_finding_says_where_what_and_how():
    (issue,) = issues(real())
    assert issue["location"]["path"] == "sample_models/gradient_cut.py"
    assert issue["check_name"] == "GS201 gradient-cut"
    assert issue["severity"] == "major"
    assert "detach() cuts it off" in issue["description"]
    assert "Help: " in issue["description"]


def test_severities():
    def severity(**changes):
        (issue,) = issues(result_of(target_with(*checked(finding(**changes)))))
        return issue["severity"]

    assert severity() == "major"
    assert severity(severity="warning") == "minor"
    assert severity(severity="note") == "info"
    assert severity(rule="GS103", name="non-finite-gradient") == "critical"
    assert severity(evidence=(("ratio", float("inf")),)) == "critical"
    assert severity(evidence=(("ratio", float("inf")),), severity="warning") == "minor"
    # Names that begin alike.
    assert severity(rule="GS504", name="non-scalar-backward") == "major"
    assert severity(rule="GS202", name="non-differentiable-operation") == "major"


def test_what_could_not_be_judged_blocks():
    found = issues(failures())
    assert {issue["severity"] for issue in found} == {"blocker"}
    assert [issue["location"]["path"] for issue in found][:2] == ["src/model.py"] * 2
    assert found[2]["location"]["path"] == "package.module"
    assert found[4]["location"]["path"] == "else.py"
    assert "Error: 5%" in found[0]["description"]
    assert "(seed 2)" in found[1]["description"]


def test_fingerprints_stay_when_lines_and_numbers_change():
    before = issues(many(50))
    (target,) = many(50).targets
    moved = tuple(
        replace(
            item,
            finding=replace(
                item.finding,
                message="another",
                location=replace(item.finding.location, line=item.finding.location.line + 9),
            ),
        )
        for item in target.findings
    )
    after = issues(result_of(replace(target, findings=moved)))
    assert [one["fingerprint"] for one in after] == [one["fingerprint"] for one in before]


def test_findings_say_target_and_seeds_where_there_are_several():
    descriptions = [issue["description"] for issue in issues(seeds())]
    assert "target: other.module:build(3)" in descriptions[1]
    assert "seeds: all 3" in descriptions[0]
    assert "seeds: 1 of 3: 1" in descriptions[3]
    assert "seeds" not in issues(real())[0]["description"]


def test_line_of_a_package_is_told_and_another_is_shown():
    found = issues(outside())
    lines = [(issue["location"]["path"], issue["location"]["lines"]["begin"]) for issue in found]
    assert lines[:5] == [("sample_models/gradient_cut.py", 1)] * 5
    assert lines[5:] == [("src/model.py", 40)] * 5
    assert "the cause is torch/nn/functional.py:7, outside the repo" in found[0]["description"]
    assert "the cause is lib/net.py:7, outside" in found[1]["description"]
    assert "the line that causes it is unknown" in found[4]["description"]
    assert "here: encoder is made here" in found[5]["description"]
