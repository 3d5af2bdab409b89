"""Accelerate: its loop under `gradscope run`, and the tracker, with the real library."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from gradscope.recording.store import load_recording
from gradscope.testing import UnhealthyGradientsError
from tests.nightly import some_on_push

pytest.importorskip("accelerate")
pytestmark = pytest.mark.filterwarnings("ignore")

from accelerate import Accelerator  # noqa: E402 - the library is optional
from accelerate.tracking import GeneralTracker  # noqa: E402

from gradscope.integrations.accelerate import GradscopeTracker  # noqa: E402


class Kept(GeneralTracker):
    name, requires_logging_directory, tracker = "kept", False, None

    def __init__(self):
        super().__init__()
        self.logs, self.is_finished = [], False

    def log(self, values, step=None, **kwargs):
        assert not self.is_finished
        self.logs.append((step, dict(values)))

    def finish(self):
        self.is_finished = True


def train(*trackers, zeroes=True):
    torch.manual_seed(0)
    accelerator = Accelerator(
        gradient_accumulation_steps=2, cpu=True, log_with=list(trackers) or None
    )
    accelerator.init_trackers("project")
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    data = torch.utils.data.DataLoader(torch.randn(16, 4), 4)
    net, optimizer, data = accelerator.prepare(net, optimizer, data)
    norms = []
    for epoch in range(2):
        for x in data:
            with accelerator.accumulate(net):
                accelerator.backward(net(x).square().mean())
                if accelerator.sync_gradients:
                    norms.append(float(accelerator.clip_grad_norm_(net.parameters(), 0.01)))
                optimizer.step()
                if zeroes:
                    optimizer.zero_grad()
            if accelerator.sync_gradients:
                accelerator.log({"epoch": epoch}, step=len(norms))
    accelerator.end_training()
    return net, norms


@pytest.mark.parametrize("is_first", [True, False])
def test_norms_before_clipping_reach_the_other_trackers(is_first):
    other, own = Kept(), GradscopeTracker()
    _, norms = train(*((own, other) if is_first else (other, own)))
    ours = [(step, logs) for step, logs in other.logs if "grad_norm/global" in logs]
    assert [step for step, _ in ours] == [1, 2, 3, 4]
    assert [logs["grad_norm/global"] for _, logs in ours] == pytest.approx(norms, rel=1e-5)
    layers = [norm for name, norm in ours[-1][1].items() if name[-1].isdigit()]
    assert torch.tensor(layers).norm().item() == pytest.approx(norms[-1], rel=1e-5)
    last = (None, {"gradscope/findings": 0.0})
    assert (other.logs[-1] == last) is is_first


def test_findings_are_reported_at_the_end(tmp_path, capsys):
    tracker = GradscopeTracker(save=tmp_path / "run.gradscope", fail_level="error")
    with pytest.raises(UnhealthyGradientsError, match="GS301"):
        train(tracker, zeroes=False)
    assert "GS301" in [one.rule for one in tracker.report.findings]
    assert "GS301" in capsys.readouterr().err
    assert len(load_recording(tmp_path / "run.gradscope").steps) == 4


def test_training_is_bit_identical():
    with_it, _ = train(GradscopeTracker(tensor_every=1))
    without, _ = train()
    assert all(map(torch.equal, with_it.parameters(), without.parameters()))


def train_part(folder, path, steps, *, resumes):
    """Train from the start or from the checkpoint, and save a checkpoint."""
    torch.manual_seed(0)
    tracker = GradscopeTracker(save=path, budget=None)
    accelerator = Accelerator(cpu=True, log_with=[tracker])
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net, optimizer = accelerator.prepare(net, optimizer)
    accelerator.init_trackers("project")
    if resumes:
        accelerator.load_state(folder)
    for _ in range(steps):
        accelerator.backward(net(torch.randn(2, 4)).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    accelerator.save_state(folder)
    accelerator.end_training()


def test_resumed_training_continues_the_recording(tmp_path):
    path, folder = tmp_path / "run.gradscope", str(tmp_path / "checkpoint")
    train_part(folder, path, 3, resumes=False)
    train_part(folder, path, 2, resumes=True)
    train_part(folder, path, 1, resumes=True)
    assert [one.name for one in tmp_path.glob("run*")] == ["run.gradscope"]
    steps = [one.index for one in load_recording(path).steps if one.optimizer]
    assert steps == [0, 1, 2, 3, 4, 5]


def test_new_training_has_a_recording_of_its_own(tmp_path):
    path, folder = tmp_path / "run.gradscope", str(tmp_path / "checkpoint")
    for _ in range(2):
        train_part(folder, path, 2, resumes=False)
    assert {one.name for one in tmp_path.glob("run*")} == {"run.gradscope", "run-2.gradscope"}


@pytest.mark.parametrize("content", some_on_push([None, "", "[]", '{"step": "x"}'], {0, 2}))
def test_checkpoint_without_a_step_starts_a_recording(tmp_path, content):
    path, folder = tmp_path / "run.gradscope", tmp_path / "checkpoint"
    train_part(str(folder), path, 2, resumes=False)
    step = folder / "gradscope.json"
    step.unlink() if content is None else step.write_text(content)
    train_part(str(folder), path, 1, resumes=True)
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
