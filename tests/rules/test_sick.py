"""Recall: sick models unlike the samples are found, at a line marked `# <-`."""

from pathlib import Path

import pytest

from tests.nightly import some_on_push
from tests.rules.inspecting import marked_lines, report_of_file

SICK = sorted(Path(__file__).with_name("sick").glob("*/gs*.py"), key=lambda one: one.name)
CODES = [path.stem[:5] for path in SICK]
A_PUSH = {CODES.index(code) for code in CODES}
"""One of each rule."""


@pytest.mark.parametrize("path", some_on_push(SICK, A_PUSH), ids=[path.stem for path in SICK])
def test_the_cause_is_found_at_its_line(path):
    code = path.stem.split("_")[0].upper()
    findings = report_of_file(path).findings
    found = [finding for finding in findings if finding.rule == code]
    assert found, [(finding.rule, finding.message) for finding in findings]
    assert {finding.location.line for finding in found} <= marked_lines(path, "# <-")
    others = {finding.rule for finding in findings if finding.severity == "error"} - {code}
    assert not others


def test_heavy_rules_have_three_sick_models_each_or_more():
    assert [code for code in CODES if CODES.count(code) < 3] == []
