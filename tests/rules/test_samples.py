"""Every rule has a sample that fires it and nothing else, at the line that says so."""

from pathlib import Path

import pytest

from gradscope.check.baseline_file import measure_of
from gradscope.recording.store import load_recording
from gradscope.rules.catalogue import RULES
from gradscope.rules.engine import judge_job
from gradscope.rules.rule import family_of
from gradscope.rules.settings import WHOLE_MODEL, NormLimit, Settings
from tests.nightly import some_on_push
from tests.rules.inspecting import marked_lines, report_of_file
from tests.rules.watching import findings_of_script

ROOT = Path(__file__).parents[2]
SETTINGS = {"GS113": Settings(norm_limits={WHOLE_MODEL: NormLimit(maximum=10.0)})}
"""Of the rules that judge by limits of the user's own, which their samples name."""

ABOUT_RANKS = tuple(rule for rule in RULES if family_of(rule.code) == "ranks")
LONG = ("GS119", "GS323", "GS708", "GS728")
"""Rules whose samples train for long. Their own tests find shorter trainings with the mistake."""
ON_PUSH = {
    at
    for at, rule in enumerate(RULES)
    if at % 2 == 0 and rule not in ABOUT_RANKS[1:] and rule.code not in LONG
}
"""Every second of the others; of the jobs at most one. The tests of a rule find its mistake too."""


def findings_of_job(jobs, path, folder, *arguments):
    """Run a sample as a job of two ranks, and return what the rules find in it."""
    save = folder / "job" / "job.gradscope"
    jobs.run(["run", "--quiet", "--save", save, path, *arguments], save.parent, cwd=ROOT)
    ranks = sorted(save.parent.glob("*.gradscope"))
    assert len(ranks) == 2
    return judge_job([load_recording(rank) for rank in ranks]).findings


@pytest.mark.parametrize("rule", some_on_push(RULES, ON_PUSH), ids=[rule.code for rule in RULES])
def test_the_sample_of_a_rule_fires_it_alone_at_the_marked_line(
    rule, monkeypatch, tmp_path, request
):
    monkeypatch.chdir(ROOT)
    path = ROOT / "sample_models" / f"{rule.name.replace('-', '_')}.py"
    if rule in ABOUT_RANKS:
        findings = findings_of_job(request.getfixturevalue("jobs"), path, tmp_path)
    elif rule.needs_run:
        findings = findings_of_script(path, tmp_path)
    else:
        findings = report_of_file(path, settings=SETTINGS.get(rule.code, Settings())).findings
    assert {finding.rule for finding in findings} == {rule.code}
    lines = marked_lines(path, f"# {rule.code}")
    assert lines
    assert {finding.location.line for finding in findings if finding.location} <= lines
    assert all(finding.location for finding in findings)
    if rule.measures:
        for finding in findings:
            assert_measured(finding)


def assert_measured(finding):
    """The measure of the rule is in the evidence, and has crossed its limit to the worse side."""
    measured = measure_of(finding)
    assert measured is not None
    measure, value = measured
    evidence = dict(finding.evidence)
    limits = [key for key in evidence if key.endswith("limit")]
    limit = evidence.get(measure.limit or next(iter(limits), ""))
    if isinstance(limit, float | int):
        assert not measure.is_worse(limit, value)


@pytest.mark.parametrize("rule", ABOUT_RANKS, ids=[rule.code for rule in ABOUT_RANKS])
@pytest.mark.nightly
def test_the_healthy_twin_of_a_job_has_no_finding(rule, tmp_path, jobs):
    path = ROOT / "sample_models" / f"{rule.name.replace('-', '_')}.py"
    assert findings_of_job(jobs, path, tmp_path, "--fixed") == ()
