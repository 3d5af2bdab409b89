"""`--keep-batches` as a user gives it, and what the report says of the batch of a NaN."""

import json
import sqlite3
from contextlib import closing
from textwrap import dedent

import pytest
import torch

from gradscope.recording.store import load_recording
from gradscope.target.stored_batches import batch_of
from tests.nightly import some_on_push

BAD, SIZE = 61, 4
STEP = BAD // SIZE

SCRIPT = """
    import os, signal, sys
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset, IterableDataset

    WORKERS, KIND, KILL = {workers}, "{kind}", {kill}

    def sample(index):
        x = torch.full((3,), index / 100) + torch.arange(3)
        if index == 61:
            x[1] = float("nan")
        y = x.nan_to_num().sum()
        return {{"x": x, "y": y}} if KIND == "dict" else (x, y)

    class Samples(Dataset):
        def __len__(self):
            return 100
        def __getitem__(self, index):
            return sample(index)

    class Stream(IterableDataset):
        def __iter__(self):
            return map(sample, range(100))

    torch.manual_seed(0)
    train_loader = DataLoader(
        Stream() if KIND == "stream" else Samples(), batch_size=4, num_workers=WORKERS
    )
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1), nn.Flatten(0))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, batch in enumerate(train_loader):
        x, y = (batch["x"], batch["y"]) if KIND == "dict" else batch
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if step == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        if step == 14:
            torch.save([p.detach().clone() for p in model.parameters()], "weights.pt")
    print(torch.rand(1).item())
"""

MODEL = """
from torch import nn
model = nn.Sequential(nn.Linear({features}, 4), nn.Tanh(), nn.Linear(4, 1), nn.Flatten(0))
"""


def written(folder, *, kind="tuple", workers=0, kill=-1):
    (folder / "train.py").write_text(dedent(SCRIPT).format(kind=kind, workers=workers, kill=kill))
    (folder / "model.py").write_text(MODEL.format(features=3))
    return folder


def finding_of(folder, gradscope_in):
    done = gradscope_in(folder, "report", "a.gradscope", "--output-format", "json")
    (found,) = [one for one in json.loads(done.stdout)["findings"] if one["rule"] == "GS104"]
    return found


@pytest.mark.parametrize(
    ("kind", "workers"),
    some_on_push([("tuple", 0), ("tuple", 2), ("dict", 1), ("stream", 0), ("stream", 1)], 3),
)
def test_the_batch_of_a_nan_is_named_and_stored(
    kind, workers, tmp_path, gradscope_in, plain_script_in
):
    folder = written(tmp_path, kind=kind, workers=workers)
    plain = plain_script_in(folder)
    weights = torch.load(folder / "weights.pt")
    options = ("--keep-batches", "on-trouble", "--save", "a.gradscope")
    done = gradscope_in(folder, "run", *options, "train.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout
    same = zip(torch.load(folder / "weights.pt"), weights, strict=True)
    assert all(torch.equal(*pair) for pair in same)
    assert "may contain private data" in done.stderr
    finding = finding_of(folder, gradscope_in)
    assert finding["step"] == STEP
    assert finding["message"].endswith("the batch already held NaN in 1 of 16 numbers")
    name = finding["evidence"]["batch"]
    if kind == "stream":
        assert name.startswith("batch of 4x3 and 4 from train_loader, min ")
    else:
        assert name == "samples 60, 61, 62, 63 of train_loader"

    stored = next(one for one in load_recording(folder / "a.gradscope").kept_batches)
    batch = batch_of(stored)
    x = batch["x"] if kind == "dict" else batch[0]
    assert stored.step == STEP
    assert x.isnan().nonzero().tolist() == [[1, 1]]
    if kind == "dict":
        return
    again = gradscope_in(
        folder, "inspect", "model.py", "--batch", f"a.gradscope:step={STEP}", "--loss", "mse"
    )
    assert "the batch holds NaN in 1 element before the forward begins" in " ".join(
        again.stdout.split()
    )


def test_stored_batches_survive_a_kill(tmp_path, gradscope_in):
    folder = written(tmp_path, kill=STEP + 2)
    (folder / "pyproject.toml").write_text('[tool.gradscope]\nkeep-batches = "on-trouble"\n')
    done = gradscope_in(folder, "run", "--save", "a.gradscope", "train.py")
    assert done.returncode != 0
    stored = load_recording(folder / "a.gradscope").kept_batches
    assert [one.step for one in stored[:2]] == [STEP, STEP + 1]
    assert batch_of(stored[0])[0].isnan().sum() == 1


@pytest.mark.nightly
def test_what_cannot_be_loaded_is_one_line(tmp_path, gradscope_in):
    folder = written(tmp_path)

    def refused(address):
        done = gradscope_in(folder, "inspect", "model.py", "--batch", address, "--loss", "mse")
        assert done.returncode == 2
        return next(line for line in done.stderr.splitlines() if line.startswith("error: "))

    gradscope_in(folder, "run", "--save", "none.gradscope", "train.py")
    gradscope_in(folder, "run", "--keep-batches=on-trouble", "--save=a.gradscope", "train.py")
    assert refused("none.gradscope:step=15") == "error: `none.gradscope` has no stored batches"
    assert refused("a.gradscope:step=3") == "error: `a.gradscope` has no batch of step 3"
    assert (
        "there is no such file"
        in gradscope_in(folder, "inspect", "model.py", "--batch", "gone.gradscope:step=3").stderr
    )
    (folder / "model.py").write_text(MODEL.format(features=5))
    assert "shapes cannot be multiplied (4x3 and 5x4)" in refused("a.gradscope:step=15")
    code = "import os; os.system('touch ran')"
    with closing(sqlite3.connect(folder / "a.gradscope")) as base, base:
        base.execute("UPDATE stored_batch SET structure = ?", [json.dumps(["code", code])])
    assert "is damaged" in refused("a.gradscope:step=15")
    with closing(sqlite3.connect(folder / "a.gradscope")) as base, base:
        base.execute("UPDATE stored_batch SET structure = ?", [json.dumps(["tensor", 0])])
        base.execute("UPDATE stored_batch_tensor SET \"values\" = x'80'")
    assert "is damaged" in refused("a.gradscope:step=15")
    assert not (folder / "ran").exists()


def test_a_wrong_choice_is_refused(tmp_path, gradscope_in):
    done = gradscope_in(written(tmp_path), "run", "--keep-batches", "always", "train.py")
    assert done.returncode == 2
    assert "on-trouble" in done.stderr
