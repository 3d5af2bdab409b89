"""The formats of CI for one report, as `gradscope inspect` and `gradscope report` give them."""

import json
import subprocess
import sys

import pytest

from gradscope.analysis.view import ViewOptions
from gradscope.report.render import render
from gradscope.rules.engine import judge
from gradscope.session.report import Report
from tests.report.ci.conftest import recording_of_sample


@pytest.fixture
def rendered():
    recording = recording_of_sample()
    report = Report.from_recording(recording, judge(recording))
    return lambda name: render(report, name, ViewOptions(), None)


def test_each_format_tells_the_finding(rendered):
    assert rendered("github").startswith("::error file=sample_models/gradient_cut.py,line=23,")
    assert json.loads(rendered("gitlab"))[0]["check_name"] == "GS201 gradient-cut"
    assert '<failure type="GS201 gradient-cut"' in rendered("junit")
    (run,) = json.loads(rendered("sarif"))["runs"]
    assert [one["ruleId"] for one in run["results"]] == ["GS201"]
    # Such commands exit with 0 whatever they find.
    assert "exitCode" not in run["invocations"][0]


def test_report_that_no_rule_has_judged_is_not_green():
    report = Report.from_recording(recording_of_sample())
    assert "could not check" in render(report, "github", ViewOptions(), None)
    assert "<error" in render(report, "junit", ViewOptions(), None)


def test_torch_is_not_needed():
    code = """
import sys
import gradscope.report.ci.github, gradscope.report.ci.gitlab, gradscope.report.ci.junit
import gradscope.report.ci.sarif, gradscope.report.ci.github
print(sorted({"torch", "numpy"} & set(sys.modules)))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"
