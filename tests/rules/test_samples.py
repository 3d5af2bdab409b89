"""Every rule has a sample that fires it and nothing else, at the line that says so."""

from pathlib import Path

import pytest

from gradscope.rules.catalogue import RULES
from gradscope.rules.settings import WHOLE_MODEL, NormLimit, Settings
from tests.rules.inspecting import marked_lines, report_of_file
from tests.rules.watching import findings_of_script

ROOT = Path(__file__).parents[2]
SETTINGS = {"GS113": Settings(norm_limits={WHOLE_MODEL: NormLimit(maximum=10.0)})}
"""Of the rules that judge by limits of the user's own, which their samples name."""


@pytest.mark.parametrize("rule", RULES, ids=[rule.code for rule in RULES])
def test_the_sample_of_a_rule_fires_it_alone_at_the_marked_line(rule, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    path = ROOT / "sample_models" / f"{rule.name.replace('-', '_')}.py"
    if rule.needs_run:
        findings = findings_of_script(path, tmp_path)
    else:
        findings = report_of_file(path, settings=SETTINGS.get(rule.code, Settings())).findings
    assert {finding.rule for finding in findings} == {rule.code}
    lines = marked_lines(path, f"# {rule.code}")
    assert lines
    assert {finding.location.line for finding in findings if finding.location} <= lines
    assert all(finding.location for finding in findings)
