"""Accelerate: its loop under `gradscope run`, and the tracker, with the real library."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from gradscope.recording.store import load_recording
from gradscope.testing import UnhealthyGradientsError

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
