"""Limits that hold for nothing are told in every format that has a place for it."""

import json
from xml.etree.ElementTree import fromstring

import pytest

from gradscope.report.ci.step_summary import step_summary
from gradscope.report.render import render_ci
from tests.report.ci.conftest import result_of, target_with

TEXT = "no module matches `encodr.*`, which has a gradient norm limit"


@pytest.fixture
def result():
    return result_of(target_with(), unmatched=("encodr.*",))


def test_annotation(result):
    annotation, verdict = render_ci(result, "github").split("\n")
    assert annotation == f"::warning title=gradscope::{TEXT}"
    assert verdict.startswith("Passed")


def test_notification(result):
    (run,) = json.loads(render_ci(result, "sarif"))["runs"]
    notes = run["invocations"][0]["toolExecutionNotifications"]
    assert {"level": "warning", "message": {"text": TEXT}} in notes


def test_case_that_is_skipped(result):
    suite = fromstring(render_ci(result, "junit"))[-1]
    assert [case.get("name") for case in suite] == [TEXT]
    assert [part.tag for part in suite[0]] == ["skipped"]


def test_line_of_the_summary(result):
    assert "\n\n- no module matches &#96;encodr.&#42;&#96;, which has" in step_summary(result)
