"""Programs with faults of intent, of the end of a run and of lines, each with a healthy twin."""

import json
from pathlib import Path

import pytest

from tests.nightly import some_on_push
from tests.rules.watching import findings_of_script

PROGRAMS = Path(__file__).parents[1] / "programs"
LEVELS = ("note", "warning", "error")
CASES = [
    (case, PROGRAMS / folder / case["file"])
    for folder in ("intent", "lines", "tail")
    for case in json.loads((PROGRAMS / folder / "manifest.json").read_text())["cases"]
]


KINDS = [(path.parent, case["label"]) for case, path in CASES]
A_PUSH = [at for at, kind in enumerate(KINDS) if kind not in KINDS[:at]]
"""A sick and a healthy program of each folder."""


@pytest.mark.parametrize(
    ("case", "path"), some_on_push(CASES, A_PUSH), ids=[case["id"] for case, _ in CASES]
)
def test_a_program_is_judged_as_its_manifest_says(case, path, tmp_path):
    found = findings_of_script(path, tmp_path)
    if case["label"] == "healthy":
        assert not [one for one in found if one.severity != "note"]
        return
    right = {*case["fault_lines"], *case["also_acceptable_lines"]}
    named = [one for one in found if one.rule in case["rules"]]
    assert any(
        LEVELS.index(one.severity) >= LEVELS.index(case["severity"]) and one.location.line in right
        for one in named
    ), [(one.rule, one.severity, one.location and one.location.line) for one in found]
