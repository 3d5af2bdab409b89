import gzip
import json
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.check.options import Policy
from gradscope.report.ci.sarif import render_sarif
from tests.nightly import some_on_push
from tests.report.ci.conftest import (
    HOSTILE,
    ROOT,
    checked,
    failures,
    finding,
    healthy,
    many,
    outside,
    real,
    related,
    result_of,
    seeds,
    site,
    target_with,
)

SCHEMA = json.loads((Path(__file__).parents[2] / "data/sarif-2.1.0-rtm.5.json").read_text())
LINK = re.compile(r"(?<!\\)\[((?:[^\[\]\\]|\\.)+)\]\((\d+)\)")


def log_of(result):
    """Parse and validate a log."""
    text = render_sarif(result)
    text.encode()
    log = json.loads(text, parse_constant=lambda name: 1 / 0)
    validator = jsonschema.Draft4Validator(
        SCHEMA, format_checker=jsonschema.Draft4Validator.FORMAT_CHECKER
    )
    validator.validate(log)
    return log


def results_of(result):
    return [one for run in log_of(result)["runs"] for one in run["results"]]


def place(location):
    physical = location["physicalLocation"]
    return physical["artifactLocation"]["uri"], physical["region"]["startLine"]


def check_rules(run):
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["shortDescription"]["text"] and rule["fullDescription"]["text"]
        assert rule["help"]["text"]
        if rule["id"] != "GS999":
            assert rule["help"]["markdown"].startswith(f"# {rule['id']} ")
            assert len(rule["properties"]["tags"]) <= 20
    for one in run["results"]:
        assert rules[one["ruleIndex"]]["id"] == one["ruleId"]


def check_result(one):
    (location,) = one["locations"]
    for shown in (location, *one["relatedLocations"]):
        uri, line = place(shown)
        assert line >= 1
        assert not uri.startswith(("/", "./", "../")) and ":" not in uri
        assert uri.isascii() and " " not in uri
    identifiers = [other["id"] for other in one["relatedLocations"]]
    links = [int(number) for _, number in LINK.findall(one["message"]["text"])]
    assert links == identifiers == list(range(len(identifiers)))
    assert one["message"]["text"].isprintable() or "\n" in one["message"]["text"]


def test_every_situation_is_what_code_scanning_takes(situation):
    log = log_of(situation)
    runs = log["runs"]
    assert 1 <= len(runs) <= 20
    assert len({run["automationDetails"]["id"] for run in runs}) == len(runs)
    for run in runs:
        check_rules(run)
        for one in run["results"]:
            check_result(one)
        hashes = [one["partialFingerprints"]["primaryLocationLineHash"] for one in run["results"]]
        assert len(set(hashes)) == len(hashes) <= 25_000
    assert sum(len(run["results"]) for run in runs) == sum(
        len(target.findings) for target in situation.targets
    )


def test_more_results_than_code_scanning_takes_are_left_out_and_told(monkeypatch):
    monkeypatch.setattr("gradscope.report.ci.sarif._MOST_RESULTS", 50)
    (run,) = log_of(many(57))["runs"]
    assert len(run["results"]) == 50
    (note,) = [
        note["message"]["text"]
        for note in run["invocations"][0]["toolExecutionNotifications"]
        if "omitted" in note["message"]["text"]
    ]
    assert note == "7 more findings omitted"


def test_real_finding_says_where_what_and_how():
    (run,) = log_of(real())["runs"]
    (one,) = run["results"]
    assert place(one["locations"][0]) == ("sample_models/gradient_cut.py", 23)
    region = one["locations"][0]["physicalLocation"]["region"]
    assert region["snippet"]["text"] == "code = self.encoder(noisy).detach()  # GS201"
    first, *_, last = one["message"]["text"].split("\n")
    assert first.endswith("detach() cuts it off from the loss.")
    assert last == "[sample_models/gradient_cut.py:17](0): encoder is made here"
    names = [one["fullyQualifiedName"] for one in one["locations"][0]["logicalLocations"]]
    assert names[0] == "encoder.0.weight"
    assert one["properties"]["evidence"]["operation"] == "detach"
    assert run["automationDetails"]["id"] == "gradscope/sample_models/gradient_cut.py/"


def test_nothing_of_this_machine_is_told():
    for result in (real(), seeds(), outside()):
        assert str(ROOT) not in render_sarif(result)


def test_known_findings_are_suppressed():
    both = (*checked(finding(0)), *checked(finding(1), is_known=True))
    first, second = results_of(result_of(target_with(*both)))
    assert first["suppressions"] == []
    assert [one["kind"] for one in second["suppressions"]] == ["external"]


def test_exit_code_and_failures():
    def invocation(result):
        return log_of(result)["runs"][0]["invocations"][0]

    assert invocation(healthy())["exitCode"] == 0
    assert invocation(real())["exitCode"] == 1
    assert invocation(replace(real(), policy=Policy(exit_zero=True)))["exitCode"] == 0
    assert "exitCode" not in invocation(replace(real(), policy=None))
    assert invocation(real())["executionSuccessful"] is True
    broken = invocation(failures())
    assert broken["exitCode"] == 2
    assert broken["executionSuccessful"] is False
    first, second = broken["toolExecutionNotifications"]
    assert first["level"] == "error"
    assert first["message"]["text"].endswith("cause: Traceback\n  line\nError: 5%\nhelp: fix it")
    assert "(seed 2)" in second["message"]["text"]


def test_each_target_is_a_category_of_its_own():
    runs = log_of(seeds())["runs"]
    assert [run["automationDetails"]["id"] for run in runs] == [
        "gradscope/sample_models/gradient_cut.py/",
        "gradscope/other.module:build(3)/",
    ]
    # The two of one name share theirs, and their findings stay apart.
    assert [len(run["results"]) for run in runs] == [4, 2]
    text = runs[1]["results"][1]["message"]["text"]
    assert "target: other.module:build(3)\nseeds: 1 of 3: 1" in text


def test_lines_of_packages_are_told_and_not_linked():
    found = results_of(outside())
    assert [place(one["locations"][0]) for one in found] == [
        *[("sample_models/gradient_cut.py", 1)] * 5,
        *[("src/model.py", 40)] * 5,
    ]
    assert "outside the repository" in found[0]["message"]["text"]
    assert found[5]["relatedLocations"] == []
    assert "torch/nn/functional.py:40: encoder is made here" in found[5]["message"]["text"]


def test_numbers_that_are_none_have_names():
    numbers = (("a", float("nan")), ("b", float("inf")), ("c", float("-inf")), ("d", 1))
    (one,) = results_of(result_of(target_with(*checked(finding(evidence=numbers)))))
    assert one["properties"]["evidence"] == {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 1}


def test_stale_entries_are_notes_or_errors():
    def level(**changes):
        result = result_of(target_with(), stale=("GS201 x",), **changes)
        (invocation,) = log_of(result)["runs"][0]["invocations"]
        return invocation["toolExecutionNotifications"][-1]["level"]

    assert (level(), level(stale_fails=True)) == ("note", "error")


@pytest.mark.parametrize("text", some_on_push(HOSTILE, 4))
def test_path_can_be_read_back(text):
    (one,) = results_of(result_of(target_with(*checked(finding(location=site(file=text))))))
    uri, _ = place(one["locations"][0])
    normal = text.replace("</", "<//").replace("//", "/")
    assert unquote(uri) == normal.encode(errors="replace").decode()


@pytest.mark.nightly
def test_as_many_results_as_it_takes_are_not_too_large_for_it():
    few, many_more = (len(gzip.compress(render_sarif(many(n)).encode())) for n in (500, 1500))
    assert few + (many_more - few) / 1000 * 25_000 < 10_000_000


@given(st.lists(st.text(st.sampled_from("ab[]()01\\ "), max_size=12), min_size=2, max_size=2))
def test_user_text_makes_no_link(texts):
    message, file = texts
    one = finding(message=message or "m", remedy=message, related=(related(file=f"d/{file}.py"),))
    (found,) = results_of_unchecked(result_of(target_with(*checked(one))))
    links = LINK.findall(found["message"]["text"])
    assert [number for _, number in links] == ["0"]


def results_of_unchecked(result):
    return json.loads(render_sarif(result))["runs"][0]["results"]
