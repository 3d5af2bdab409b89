"""The same code under the same seed gives the same report, and no seed makes healthy code sick."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gradscope.report.json.report import render_json
from gradscope.rules.engine import judge
from gradscope.session.report import Report
from tests.nightly import some_on_push
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
import gc, sys
import torch
from tests.rules.test_seeds import reported

torch.set_num_threads(1)
gc.set_threshold(41)  # other addresses, another time for the garbage collector
held = [torch.zeros(size % 97 + 1) for size in range(1000)][::3]
for path in reversed(sys.argv[1:]):
    print(reported(path))
"""


def reported(path: str) -> str:
    """Return the report of a file as JSON, without the times."""
    report = json.loads(render_json(report_of_file(Path(path))))
    for event in report["events"]:
        del event["seconds"]
    return json.dumps([path, report])


@pytest.mark.parametrize(
    "paths",
    [
        SICK[:1],
        pytest.param([*HEALTHY, *SICK], marks=pytest.mark.nightly),
    ],
    ids=["some", "all"],
)
def test_reports_of_processes_are_the_same_byte_for_byte(paths, monkeypatch):
    names = [str(path) for path in paths]
    # This process has another seed of hashes: a random one, or 0 where the tests run in workers.
    environment = {**os.environ, "PYTHONHASHSEED": "2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", REPORTS, *names],
        env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    monkeypatch.chdir(ROOT)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        here = [reported(name) for name in names]
    finally:
        torch.set_num_threads(threads)
    assert sorted(done.stdout.splitlines()) == sorted(here)


@pytest.mark.parametrize("path", some_on_push(SICK, 3), ids=[path.stem for path in SICK])
def test_the_same_recording_is_judged_alike_twice(path):
    report = report_of_file(path)
    again = Report.from_recording(report.recording, judge(report.recording))
    assert again.findings
    assert render_json(again) == render_json(report)


SEEDED = pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.nightly] if "gpt" in path.stem else [])
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
