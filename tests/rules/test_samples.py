"""Every rule has a sample that fires it and nothing else, at the line that says so."""

from pathlib import Path

import pytest

from gradscope.rules.catalogue import RULES
from tests.rules.inspecting import marked_lines, report_of_file

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("rule", RULES, ids=[rule.code for rule in RULES])
def test_the_sample_of_a_rule_fires_it_alone_at_the_marked_line(rule, monkeypatch):
    monkeypatch.chdir(ROOT)
    path = ROOT / "sample_models" / f"{rule.name.replace('-', '_')}.py"
    report = report_of_file(path)
    assert {finding.rule for finding in report.findings} == {rule.code}
    lines = marked_lines(path, f"# {rule.code}")
    assert lines
    assert {finding.location.line for finding in report.findings if finding.location} <= lines
    assert all(finding.location for finding in report.findings)
