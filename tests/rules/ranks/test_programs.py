"""Jobs with a mistake, each with a healthy twin: the joined report names the line."""

import json
from pathlib import Path

import pytest

from gradscope.rules.engine import judge_job

FOLDER = Path(__file__).parents[2] / "programs" / "ranks"
LEVELS = ("note", "warning", "error")
CASES = json.loads((FOLDER / "manifest.json").read_text())["cases"]


def judged(case):
    """Return a case; a mistake that is known to be missed must be missed."""
    return pytest.param(case, marks=pytest.mark.xfail(strict=True) if case.get("missed") else ())


@pytest.mark.nightly
@pytest.mark.parametrize("case", [judged(case) for case in CASES], ids=[c["id"] for c in CASES])
def test_a_job_is_judged_as_its_manifest_says(jobs, case, tmp_path):
    recordings = jobs.record(FOLDER / case["file"], tmp_path / "job", ranks=case["ranks"])
    assert len(recordings) == case["ranks"]
    found = judge_job(recordings).findings
    loud = [one for one in found if one.severity != "note"]
    if case["label"] == "healthy":
        assert not loud
        return
    right = [one for one in found if one.rule in case["rules"]]
    level = LEVELS.index(case["severity"])
    assert any(
        LEVELS.index(one.severity) >= level and lines_of(one) & {*case["fault_lines"]}
        for one in right
    ), [(one.rule, one.severity, lines_of(one)) for one in found]


def lines_of(finding):
    return {one.line for one in (finding.location, *finding.related) if one is not None}
