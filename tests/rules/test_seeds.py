"""The same code under the same seed gives the same report, and no seed makes healthy code sick."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gradscope.report.json.report import render_json
from gradscope.rules.engine import judge
from gradscope.session.report import Report
from tests.rules.inspecting import report_of_file

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "sample_models"
HEALTHY = sorted(SAMPLES.glob("healthy_*.py"))
SICK = [
    SAMPLES / f"{name}.py"
    for name in (
        "gradient_cut",
        "in_place_modification",
        "non_finite_gradient",
        "parameter_not_in_optimizer",
        "short_memory_horizon",
        "wrong_custom_gradient",
    )
]

REPORTS = """
import gc, json, sys
from pathlib import Path
import torch
from gradscope.report.json.report import render_json
from tests.rules.inspecting import report_of_file

torch.set_num_threads(1)
order, *paths = sys.argv[1:]
if order == "other":  # other addresses, another time for the garbage collector
    gc.set_threshold(41)
    held = [torch.zeros(size % 97 + 1) for size in range(1000)][::3]
    paths = paths[::-1]
for path in paths:
    report = json.loads(render_json(report_of_file(Path(path))))
    for event in report["events"]:
        del event["seconds"]
    print(json.dumps([path, report]))
"""


def started(order: str, hash_seed: str, paths: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", REPORTS, order, *paths],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "paths",
    [
        [HEALTHY[-1], *SICK[:2]],
        pytest.param([*HEALTHY, *SICK], marks=pytest.mark.nightly),
    ],
    ids=["some", "all"],
)
def test_reports_of_processes_are_the_same_byte_for_byte(paths):
    names = [str(path) for path in paths]
    both = [started("given", "1", names), started("other", "2", names)]
    one, other = (sorted(process.communicate()[0].splitlines()) for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert len(one) == len(paths)
    assert one == other


@pytest.mark.parametrize("path", SICK, ids=[path.stem for path in SICK])
def test_the_same_recording_is_judged_alike_twice(path):
    report = report_of_file(path)
    again = Report.from_recording(report.recording, judge(report.recording))
    assert again.findings
    assert render_json(again) == render_json(report)


SEEDED = pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if "gpt" in path.stem else [])
        for path in HEALTHY
    ],
)


def findings_by_seed(path, seeds):
    found = {seed: report_of_file(path, seed=seed).findings for seed in seeds}
    return {seed: [one.message for one in ones] for seed, ones in found.items() if ones}


@SEEDED
def test_no_seed_makes_healthy_code_sick(path):
    assert findings_by_seed(path, range(2)) == {}


@pytest.mark.nightly
@SEEDED
def test_no_seed_of_many_makes_healthy_code_sick(path):
    assert findings_by_seed(path, range(2, 20)) == {}
