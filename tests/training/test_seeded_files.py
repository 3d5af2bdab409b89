"""Files trained with a seed: the seed determines all random numbers."""

import pytest
import torch

from gradscope.analysis.recording_index import first_step
from gradscope.target.options import Trial
from tests.rules.inspecting import report_of_file

TEXT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Noisy(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, place):
        return torch.randn(4), place % 3

def build_model():
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))

train_loader = DataLoader(Noisy(), batch_size=8, shuffle=True)
criterion = nn.CrossEntropyLoss()
"""


@pytest.fixture
def losses(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(TEXT)

    def run(**chosen):
        trial = Trial(steps=chosen.pop("steps"), probe_steps=chosen.pop("probe_steps", 0))
        torch.manual_seed(chosen.pop("outer", 0))
        recording = report_of_file(path, trial=trial, **chosen).recording
        return [step.loss for step in recording.steps if step.kind != "probe"]

    return run


def test_same_seed_gives_the_same_training(losses):
    assert losses(steps=7, seed=3) == losses(steps=7, seed=3, outer=99)


def test_another_seed_gives_another(losses):
    assert set(losses(steps=4, seed=3)).isdisjoint(losses(steps=4, seed=4))


def test_steps_do_not_depend_on_how_many_there_are(losses):
    assert losses(steps=7, seed=3)[:4] == losses(steps=3, seed=3, probe_steps=2)


def test_without_steps_it_is_the_first_of_them(losses):
    assert losses(steps=0, seed=3) == losses(steps=5, seed=3)[:1]


@pytest.mark.parametrize("seed", [2**64 - 1, -1])
def test_seeds_at_the_end_of_their_range(losses, seed):
    assert len(losses(steps=2, seed=seed)) == 3


def test_half_precision_and_eval_mode(tmp_path):
    path = tmp_path / "model.py"
    path.write_text(TEXT)
    report = report_of_file(path, trial=Trial(steps=3), dtype="bfloat16", mode="eval")
    assert first_step(report.recording).step.index == 3
    assert report.target.mode == "eval"
