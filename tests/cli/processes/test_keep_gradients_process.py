"""`--keep-gradients` as a user gives it."""

from textwrap import dedent

import pytest

from gradscope.recording.store import load_recording
from gradscope.recording.stored_gradient import cosine
from tests.nightly import some_on_push

MODEL = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
batch = (torch.ones(8, 3), torch.zeros(8, dtype=torch.long))
criterion = nn.CrossEntropyLoss()
"""
SCRIPT = """
    import torch
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).square().mean().backward()
        optimizer.step()
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "train.py").write_text(dedent(SCRIPT))
    return tmp_path


def test_check_inspect_and_run_keep_gradients(folder, gradscope_in):
    config = '[tool.gradscope]\nkeep-gradients = "sketch"\n'
    (folder / "pyproject.toml").write_text(config)
    done = gradscope_in(
        folder, "check", "model.py", "--keep-gradients", "exact", "--save", "a.gradscope"
    )
    assert done.returncode == 0, done.stderr
    done = gradscope_in(folder, "inspect", "model.py", "--save", "b.gradscope")
    assert done.returncode == 0, done.stderr
    one, other = (load_recording(folder / f"{name}.gradscope") for name in "ab")
    kept = zip(one.stored_gradients, other.stored_gradients, strict=True)
    assert [cosine(*pair) for pair in kept] == [1.0] * 4

    options = ("--keep-gradients", "exact", "--keep-gradients-every", "2")
    done = gradscope_in(folder, "run", *options, "--save", "c.gradscope", "train.py")
    assert done.returncode == 0, done.stderr
    run = load_recording(folder / "c.gradscope")
    assert [one.step for one in run.stored_gradients] == [0, 0, 2, 2, 4, 4]


@pytest.mark.parametrize("command", some_on_push(["inspect", "check", "clip-report"], 2))
def test_what_nobody_saves_is_not_kept(command, folder, gradscope_in):
    done = gradscope_in(folder, command, "model.py", "--keep-gradients", "exact")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "error: --keep-gradients exact stores gradients in a recording, but none is saved",
        "  help: add --save RECORDING",
    ]
