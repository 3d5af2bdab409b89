"""Accelerate: its loop under `gradscope run`, and the tracker, with the real library."""

import importlib
import os
import subprocess
import sys

import pytest
import torch

from gradscope.recording.store import load_recording
from gradscope.testing import UnhealthyGradientsError
from tests.nightly import some_on_push

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def accelerate():
    """The training: only the worker that has these tests imports the library."""
    pytest.importorskip("accelerate")
    return importlib.import_module("tests.integrations.accelerate_training")


@pytest.mark.parametrize("is_first", some_on_push([True, False], 2))
def test_norms_before_clipping_reach_the_other_trackers(accelerate, is_first):
    other, own = accelerate.Kept(), accelerate.GradscopeTracker()
    _, norms = accelerate.train(*((own, other) if is_first else (other, own)))
    ours = [(step, logs) for step, logs in other.logs if "grad_norm/global" in logs]
    assert [step for step, _ in ours] == [1, 2, 3, 4]
    assert [logs["grad_norm/global"] for _, logs in ours] == pytest.approx(norms, rel=1e-5)
    layers = [norm for name, norm in ours[-1][1].items() if name[-1].isdigit()]
    assert torch.tensor(layers).norm().item() == pytest.approx(norms[-1], rel=1e-5)
    last = (None, {"gradscope/findings": 0.0})
    assert (other.logs[-1] == last) is is_first


def test_findings_are_reported_at_the_end(accelerate, tmp_path, capsys):
    tracker = accelerate.GradscopeTracker(save=tmp_path / "run.gradscope", fail_level="error")
    with pytest.raises(UnhealthyGradientsError, match="GS301"):
        accelerate.train(tracker, zeroes=False)
    assert "GS301" in [one.rule for one in tracker.report.findings]
    assert "GS301" in capsys.readouterr().err
    assert len(load_recording(tmp_path / "run.gradscope").steps) == 4


def test_training_is_bit_identical(accelerate):
    with_it, _ = accelerate.train(accelerate.GradscopeTracker(tensor_every=1))
    without, _ = accelerate.train()
    assert all(map(torch.equal, with_it.parameters(), without.parameters()))


@pytest.mark.nightly
def test_resumed_training_continues_the_recording(accelerate, tmp_path):
    path, folder = tmp_path / "run.gradscope", str(tmp_path / "checkpoint")
    accelerate.train_part(folder, path, 3, resumes=False)
    accelerate.train_part(folder, path, 2, resumes=True)
    accelerate.train_part(folder, path, 1, resumes=True)
    assert [one.name for one in tmp_path.glob("run*")] == ["run.gradscope"]
    steps = [one.index for one in load_recording(path).steps if one.optimizer]
    assert steps == [0, 1, 2, 3, 4, 5]


@pytest.mark.nightly
def test_new_training_has_a_recording_of_its_own(accelerate, tmp_path):
    path, folder = tmp_path / "run.gradscope", str(tmp_path / "checkpoint")
    for _ in range(2):
        accelerate.train_part(folder, path, 2, resumes=False)
    assert {one.name for one in tmp_path.glob("run*")} == {"run.gradscope", "run-2.gradscope"}


@pytest.mark.nightly
@pytest.mark.parametrize("content", some_on_push([None, "", "[]", '{"step": "x"}'], {0}))
def test_checkpoint_without_a_step_starts_a_recording(accelerate, tmp_path, content):
    path, folder = tmp_path / "run.gradscope", tmp_path / "checkpoint"
    accelerate.train_part(str(folder), path, 2, resumes=False)
    step = folder / "gradscope.json"
    step.unlink() if content is None else step.write_text(content)
    accelerate.train_part(str(folder), path, 1, resumes=True)
    steps = load_recording(tmp_path / "run-2.gradscope").steps
    assert len([one for one in steps if one.optimizer]) == 1


SCRIPT = """
import torch
from accelerate import Accelerator
from torch import nn

accelerator = Accelerator(cpu=True)
classifier = nn.Linear(4, 1)
optimizer = torch.optim.SGD(classifier.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.randn(16, 4), 4)
classifier, optimizer, data = accelerator.prepare(classifier, optimizer, data)
for x in data:
    accelerator.backward(classifier(x).square().mean())
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.nightly  # as the launchers of ranks elsewhere
@pytest.mark.slow
def test_launcher_runs_a_script_under_gradscope(tmp_path):
    pytest.importorskip("accelerate")
    (tmp_path / "train.py").write_text(SCRIPT)
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1"]
    options = ["-m", "gradscope", "run", "--check", "--save", "run.gradscope", "train.py"]
    done = subprocess.run(
        [*launch, *options],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    recording = load_recording(tmp_path / "run.gradscope")
    assert len([one for one in recording.steps if one.optimizer]) == 4
    names = [one.name for one in recording.parameters]
    assert names == ["classifier.weight", "classifier.bias"]
