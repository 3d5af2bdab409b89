import html
import json
import re
from dataclasses import replace
from xml.etree.ElementTree import fromstring

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradscope.check.options import Policy
from gradscope.phrasing import printable
from gradscope.report.ci.github import step_summary
from gradscope.report.formats.markdown import escape
from gradscope.report.render import render_ci
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

LIMIT = 512 * 1024
FENCED = re.compile(r"^(`{3,}|~{3,})\w*\n.*?\n\1$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]+`")


TEXT = "no module matches `encodr.*`, which has a gradient norm limit"


def test_every_situation_is_small_and_harmless(situation):
    text = step_summary(situation)
    assert len(text.encode()) <= LIMIT
    assert text.startswith("## gradscope: ")
    assert all(line.isprintable() for line in text.split("\n"))
    # Outside of code nothing is left that Markdown or HTML would act on.
    prose = CODE.sub("", FENCED.sub("", text))
    prose = re.sub(r"</?(?:details|summary|code)>", "", prose)
    assert not re.search(r"[<>@`|\[\]~]", prose)


def test_as_much_as_fits_is_shown_and_the_rest_counted():
    text = step_summary(many(3000))
    assert LIMIT - 4000 < len(text.encode()) <= LIMIT
    assert "3000" not in text
    shown = text.count("- **help**")
    assert text.endswith("did not fit into the summary: see the log.")
    assert f"{3000 - shown:,} more paragraphs" in text


def test_outcome_is_in_the_title():
    def title(result, **policy):
        return step_summary(replace(result, policy=Policy(**policy))).partition("\n")[0]

    assert title(healthy()) == "## gradscope: passed"
    assert title(real()) == "## gradscope: failed"
    assert title(real(), exit_zero=True) == "## gradscope: passed"
    assert title(failures()) == "## gradscope: could not check"
    assert step_summary(replace(real(), policy=None)).startswith("## gradscope: report\n")


def test_real_finding_is_shown_with_its_code():
    text = step_summary(real())
    assert "## gradscope: failed\n\nFailed: 1 error.\n\n###" in text
    assert "**error GS201 gradient-cut** at `sample_models/gradient_cut.py:23`: encoder" in text
    assert "\n> 23     code = self.encoder(noisy).detach()  # GS201\n" in text
    assert "- `sample_models/gradient_cut.py:17`: encoder is made here" in text
    assert "- **help**: pass the tensor on unchanged" in text


def test_healthy_target_says_what_judged_it():
    text = step_summary(healthy())
    assert "\n\nPassed: no findings in 1 target.\n\n### `sample" in text
    assert re.search(r"8 parameters, global gradient norm 0\.\d+, \d+ rules\.$", text)


def test_known_findings_are_folded_away():
    both = (*checked(finding(0)), *checked(finding(1), is_known=True))
    head, _, folded = step_summary(result_of(target_with(*both))).partition("<details>")
    assert "Failed: 1 error. 1 known finding in the baseline, not counted." in head
    assert "src/model.py:12" in head and "src/model.py:13" not in head
    assert "src/model.py:13" in folded


def test_several_targets_and_seeds():
    text = step_summary(seeds())
    assert "Failed: 3 errors." in text
    assert "### `other.module:build(3)`\n\n8 parameters, " in text
    assert "- seeds: 1 of 3: 1" in text


def test_failures_are_told_in_full():
    text = step_summary(failures())
    assert "**could not check src/model.py:Net(3) (seeds 0, 1): the forward raised**" in text
    assert "~~~text\ncause: Traceback\n  line\nError: 5%\nhelp: fix it\n~~~" in text
    assert "not run" in text


def test_cause_in_a_package_is_named_where_it_is():
    text = step_summary(outside())
    assert "at `torch/nn/functional.py:7`: " in text
    assert "at `lib/net.py:7`: " in text


def test_stale_entries_are_listed():
    result = result_of(target_with(), stale=("GS201 a",) * 25)
    assert step_summary(result).endswith("- GS201 a\n- and 5 more")


@pytest.mark.parametrize("policy", [{"max_warnings": 0}, {"fail_level": "warning"}])
def test_reason_of_a_failure_is_told(policy):
    result = result_of(target_with(*checked(finding(severity="warning"))))
    text = step_summary(replace(result, policy=Policy(**policy)))
    assert "Failed: 1 warning" in text


@given(st.text())
def test_escapes_can_be_undone(text):
    assert html.unescape(escape(text)) == printable(text)


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
