"""`--fix` through the command line."""

from textwrap import dedent

import pytest

PROGRAM = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = [nn.Linear(4, 4), nn.Linear(4, 4)]
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        for layer in self.inner: x = layer(x)
        return self.fc(x).softmax(dim=1)  # é


model = Net()


def build_batch():
    return torch.randn(8, 4), torch.arange(8) % 3


def loss_fn(output, target):
    return nn.functional.cross_entropy(output, target)
"""
MIXED = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = {i: nn.Linear(4, 4) for i in range(2)}
        self.fc = nn.Linear(4, 3)
    def forward(self, x):
        return self.fc(self.inner[1](self.inner[0](x)))
model = Net()
batch = torch.randn(8, 4), torch.arange(8) % 3
criterion = nn.CrossEntropyLoss()
"""


def test_all_fixes_are_written_that_hold_together(tmp_path, gradscope_in):
    file = tmp_path / "model.py"
    text = "# coding: latin-1" + PROGRAM.replace("\n", "\r\n")
    file.write_bytes(text.encode("latin-1"))
    done = gradscope_in(tmp_path, "check", "model.py", "--fix")
    assert done.returncode == 0, done.stdout
    assert "note: fixed GS701" in done.stderr and "note: fixed GS207" in done.stderr
    changed = text.replace("[nn.Linear(4, 4), nn.Linear(4, 4)]",
                           "nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])")  # fmt: skip
    changed = changed.replace(".softmax(dim=1)", "")
    assert file.read_bytes() == changed.encode("latin-1")


def test_only_the_rules_that_are_asked_for_are_fixed(tmp_path, gradscope_in):
    file = tmp_path / "model.py"
    file.write_text(PROGRAM)
    done = gradscope_in(tmp_path, "inspect", "model.py", "--fix", "--fix-only", "GS7")
    assert file.read_text() == PROGRAM.replace(".softmax(dim=1)", "")
    assert "GS207" in done.stdout and "GS701" not in done.stdout  # of the fixed program


def test_a_fix_that_is_not_verified_is_shown_and_not_written(tmp_path, gradscope_in):
    (tmp_path / "model.py").write_text(dedent(MIXED))
    done = gradscope_in(tmp_path, "check", "model.py", "--diff")
    assert done.returncode == 1
    (verdict,) = (line for line in done.stdout.splitlines() if line.startswith("not verified"))
    assert verdict.startswith("not verified: the edited program cannot be judged")
    assert verdict.endswith(" at model.py:7")
    assert done.stdout.rstrip().endswith("1 fix, 0 verified")
    assert done.stderr == ""
    done = gradscope_in(tmp_path, "check", "model.py", "--fix")
    assert done.returncode == 1
    assert (tmp_path / "model.py").read_text() == MIXED


CIRCULAR = {
    "model.py": """
import torch
from torch import nn

import losses

SCALE = 2.0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = [nn.Linear(4, 4), nn.Linear(4, 4)]
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(self.inner[1](self.inner[0](x)))


model = Net()
batch = torch.randn(8, 4), torch.arange(8) % 3
loss_fn = losses.scaled
""",
    "losses.py": """
from torch.nn import functional as F

import model


def scaled(output, target):
    return model.SCALE * F.cross_entropy(output.softmax(dim=1), target)
""",
}


@pytest.mark.nightly
def test_modules_that_import_each_other_are_fixed_together(tmp_path, gradscope_in):
    for name, text in CIRCULAR.items():
        (tmp_path / name).write_text(text)
    done = gradscope_in(tmp_path, "check", "model.py", "--fix")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nn.ModuleList([nn.Linear" in (tmp_path / "model.py").read_text()
    assert "F.cross_entropy(output, target)" in (tmp_path / "losses.py").read_text()
