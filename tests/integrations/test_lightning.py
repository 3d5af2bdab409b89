"""The callback for Lightning's Trainer, with the real library."""

import csv
import importlib
import pickle
import subprocess
import sys

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from gradscope.errors import GradscopeError
from gradscope.recording.evidence.training import TrainedOptimizer
from gradscope.recording.records import Recording
from gradscope.recording.store import load_recording
from gradscope.rules.engine import judge
from gradscope.testing import UnhealthyGradientsError
from tests.nightly import some_on_push

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def lightning():
    """The training: only the worker that has these tests imports the library."""
    pytest.importorskip("lightning")
    return importlib.import_module("tests.integrations.lightning_training")


def logged(folder):
    with next(folder.glob("version_*/metrics.csv")).open() as file:
        return [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]


def test_norms_are_those_before_clipping_at_the_steps_of_the_trainer(lightning, tmp_path):
    callback = lightning.GradscopeCallback()
    options = {"accumulate_grad_batches": 2, "gradient_clip_val": 0.01}
    net, trainer = lightning.fit(callback, tmp_path, **options)
    rows = [row for row in logged(tmp_path) if "grad_norm/global" in row]
    assert trainer.global_step == len(net.norms) == 6
    assert [row["grad_norm/global"] for row in rows] == pytest.approx(net.norms, rel=1e-5)
    assert [(row["epoch"], row["step"]) for row in rows] == [
        (0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (1, 5),
    ]  # fmt: skip
    for row in rows:
        layers = [row["grad_norm/net.encoder"], row["grad_norm/net.head"]]
        assert torch.tensor(layers).norm().item() == pytest.approx(
            row["grad_norm/global"], rel=1e-5
        )


def test_findings_are_reported_at_the_end(lightning, tmp_path, capsys):
    callback = lightning.GradscopeCallback(save=tmp_path / "run.gradscope")
    lightning.fit(callback, tmp_path, is_cut=True)
    assert [(one.rule, one.severity) for one in callback.report.findings] == [("GS201", "warning")]
    location = callback.report.findings[0].location
    assert location.source == "hidden = hidden.detach()"
    assert logged(tmp_path)[-1]["gradscope/findings"] == 1
    told = capsys.readouterr().err
    assert "GS201" in told
    assert "run.gradscope" in told
    assert len(load_recording(tmp_path / "run.gradscope").steps) == 12


@pytest.mark.nightly
def test_findings_at_the_fail_level_end_the_training_with_an_error(lightning, tmp_path):
    with pytest.raises(UnhealthyGradientsError, match="GS201") as caught:
        lightning.fit(lightning.GradscopeCallback(fail_level="warning"), tmp_path, is_cut=True)
    assert [one.rule for one in caught.value.findings] == ["GS201"]
    # It is a warning.
    lightning.fit(lightning.GradscopeCallback(fail_level="error"), tmp_path, is_cut=True)


def test_clip_of_the_trainer_is_at_its_argument(lightning, tmp_path):
    callback = lightning.GradscopeCallback()
    lightning.fit(callback, tmp_path, max_epochs=4, gradient_clip_val=1234.5)
    (found,) = [one for one in callback.report.findings if one.rule == "GS406"]
    assert "gradient_clip_val=1234.5" in found.location.source


@pytest.mark.nightly
def test_precision_of_the_trainer_is_at_its_argument(lightning, tmp_path):
    callback = lightning.GradscopeCallback()
    torch.manual_seed(0)
    data = DataLoader(TensorDataset(torch.randn(24, 4), torch.randn(24, 1)), 4)
    trainer = lightning.L.Trainer(
        precision="bf16-true",
        accelerator="cpu",
        callbacks=[callback],
        max_epochs=4,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    net = lightning.Net()
    net.configure_optimizers = lambda: torch.optim.SGD(net.parameters(), lr=1e-6)
    trainer.fit(net, data)
    (found,) = [one for one in callback.report.findings if one.rule == "GS603"]
    assert "torch.optim.SGD" in found.location.source
    assert 'precision="bf16-true",' in [one.source for one in found.related]


def test_training_is_bit_identical(lightning, tmp_path):
    with_it, _ = lightning.fit(
        lightning.GradscopeCallback(tensor_every=1), tmp_path, accumulate_grad_batches=2
    )
    without, _ = lightning.fit(None, tmp_path, accumulate_grad_batches=2)
    for one, other in zip(with_it.parameters(), without.parameters(), strict=True):
        assert torch.equal(one, other)


def whole_and_resumed(lightning, tmp_path, *, first_epochs=1, **options):
    """Return the recordings of a training, and of one that was resumed after its first epoch."""
    path, checkpoint = tmp_path / "run.gradscope", tmp_path / "last.ckpt"
    lightning.fit(
        lightning.GradscopeCallback(save=tmp_path / "whole.gradscope", budget=None),
        tmp_path,
        **options,
    )
    _, trainer = lightning.fit(
        lightning.GradscopeCallback(save=path, budget=None), tmp_path, max_epochs=1, **options
    )
    trainer.save_checkpoint(checkpoint)
    if first_epochs > 1:  # it went on behind the checkpoint
        path.unlink()
        once_more = lightning.GradscopeCallback(save=path, budget=None)
        lightning.fit(once_more, tmp_path, max_epochs=first_epochs, **options)
    callback = lightning.GradscopeCallback(save=path, budget=None)
    _, trainer = lightning.fit(callback, tmp_path / "resumed", ckpt=checkpoint, **options)
    assert trainer.global_step == 12
    return load_recording(tmp_path / "whole.gradscope"), load_recording(path), callback


def curve(recording):
    return [(one.index, one.loss) for one in recording.steps if one.optimizer]


def norms(recording):
    names = {one.index: one.name.partition(".")[2] for one in recording.parameters}
    return [
        (one.step, names[one.parameter], one.gradient.norm) for one in recording.parameter_stats
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("first_epochs", some_on_push([1, 3], 2))
def test_resumed_training_continues_the_recording(lightning, tmp_path, first_epochs):
    whole, resumed, callback = whole_and_resumed(lightning, tmp_path, first_epochs=first_epochs)
    assert sorted(one.name for one in tmp_path.glob("run*")) == ["run.gradscope"]
    assert curve(resumed) == curve(whole)
    assert norms(resumed) == norms(whole)
    assert curve(callback.report.recording) == curve(whole)
    assert [one.class_name for one in resumed.evidence_of(TrainedOptimizer)] == ["SGD"]
    seconds = [one.seconds for one in resumed.events]
    assert seconds == sorted(seconds)
    rows = [row for row in logged(tmp_path / "resumed") if "grad_norm/global" in row]
    assert [row["step"] for row in rows] == [6, 7, 8, 9, 10, 11]


@pytest.mark.nightly
def test_resumed_training_has_the_findings_of_the_whole_one(lightning, tmp_path):
    options = {"is_cut": True, "accumulate_grad_batches": 1, "gradient_clip_val": 1e6}
    whole, resumed, _ = whole_and_resumed(lightning, tmp_path, **options)
    found = [
        sorted((one.rule, one.location.source) for one in judge(recording).findings)
        for recording in (whole, resumed)
    ]
    assert found[0] == found[1]
    assert "GS201" in {rule for rule, _ in found[0]}


@pytest.mark.nightly
def test_new_training_has_a_recording_of_its_own(lightning, tmp_path):
    path = tmp_path / "run.gradscope"
    for _ in range(2):
        lightning.fit(lightning.GradscopeCallback(save=path), tmp_path, max_epochs=1)
    names = [one.name for one in sorted(tmp_path.glob("run*"))]
    assert names == ["run-2.gradscope", "run.gradscope"]


KILLED = """
import os, signal, sys
sys.path.insert(0, {folder!r})
from pathlib import Path
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning_training import GradscopeCallback, fit

class Killer(Callback):
    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)

here = Path.cwd()
import lightning as L
make = L.Trainer
def trainer(**options):
    saved = ModelCheckpoint(here / "ckpts", every_n_train_steps=4, save_top_k=-1)
    options["callbacks"] += [Killer(), saved]
    return make(**{{**options, "enable_checkpointing": True}})
L.Trainer = trainer
ckpt = None if sys.argv[1] == "-" else here / "ckpts" / sys.argv[1]
fit(GradscopeCallback(save="run.gradscope", budget=None), here, ckpt=ckpt)
"""


@pytest.mark.nightly
def test_recording_survives_a_kill_in_each_part(tmp_path, request):
    (tmp_path / "train.py").write_text(KILLED.format(folder=str(request.path.parent)))

    def train(checkpoint, killed_at):
        command = [sys.executable, "train.py", checkpoint, str(killed_at)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)

    assert train("-", 6).returncode == -9
    first = curve(load_recording(tmp_path / "run.gradscope"))
    assert train("epoch=0-step=4.ckpt", 10).returncode == -9
    assert (tmp_path / "run.gradscope-next").exists()
    second = curve(load_recording(tmp_path / "run.gradscope"))
    # In the middle of an epoch, Lightning begins with the first batch again.
    assert second[:4] == first[:4]
    assert second[4:] != first[4:]
    assert [step for step, _ in second] == list(range(len(second)))
    assert len(second) >= 9
    done = train("epoch=1-step=8.ckpt", -1)
    assert done.returncode == 0, done.stderr
    assert sorted(one.name for one in tmp_path.glob("run*")) == ["run.gradscope"]
    third = curve(load_recording(tmp_path / "run.gradscope"))
    assert third[:8] == second[:8]
    assert [step for step, _ in third] == list(range(12))


@pytest.mark.nightly
def test_exception_of_the_training_is_recorded(lightning, tmp_path):
    path = tmp_path / "run.gradscope"
    with pytest.raises(RuntimeError, match="no more batches"):
        lightning.fit(lightning.GradscopeCallback(save=path), tmp_path, fails_at=1)
    recording: Recording = load_recording(path)
    assert len([one for one in recording.steps if one.optimizer]) == 1
    assert torch.nn.Module.zero_grad.__module__ == "torch.nn.modules.module"


def test_callback_can_be_sent_to_other_processes(lightning):
    pickle.loads(
        pickle.dumps(lightning.GradscopeCallback(save="run.gradscope", fail_level="error"))
    )


@pytest.mark.parametrize(
    "arguments", [{"fail_level": "bad"}, {"budget": -1}, {"every": 0}, {"select": "GS999"}]
)
def test_wrong_argument_is_an_error(lightning, arguments):
    with pytest.raises(GradscopeError):
        lightning.GradscopeCallback(**arguments)


SCRIPT = """
import torch
import lightning as L
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from gradscope.integrations.lightning import GradscopeCallback

class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.mse_loss(self.layer(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

torch.manual_seed(0)
data = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), 4)
trainer = L.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    callbacks=[GradscopeCallback(save="run.gradscope", fail_level="error")],
)
model = Net()
trainer.fit(model, data)
"""


@pytest.mark.nightly
def test_each_rank_has_a_recording_and_the_first_one_reports(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Report of") == 1
    assert "2 ranks" in done.stderr
    files = sorted(tmp_path.glob("*.gradscope"))
    assert [one.name for one in files] == ["run.rank0.gradscope", "run.rank1.gradscope"]
    for file in files:
        recording = load_recording(file)
        assert len([one for one in recording.steps if one.optimizer]) == 4
        assert [one.name for one in recording.parameters] == [
            "model.layer.weight",
            "model.layer.bias",
        ]
