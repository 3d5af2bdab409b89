"""`gradscope compare` with targets, each in a process of its own."""

import json
from textwrap import dedent

import pytest

MODEL = """
import sys
import torch
from torch import nn

def build(width=8, cut=False):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, width), nn.Linear(width, 2)

        def forward(self, x):
            hidden = self.first(x).tanh()
            return self.last(hidden.detach() if cut else hidden)

    return Net()

def build_model():
    return build()

def build_batch():
    return torch.randn(6, 4), torch.randint(2, (6,))

loss_fn = nn.CrossEntropyLoss()
print("the target's own words")
"""


SCRIPT = """
import sys
import torch
from torch import nn

threads, parts = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(threads)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
                      nn.Linear(256, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(6):
    inputs, targets = torch.randn(256, 64), torch.randint(4, (256,))
    optimizer.zero_grad()
    for some, of_them in zip(inputs.chunk(parts), targets.chunk(parts)):
        (nn.functional.cross_entropy(model(some), of_them) / parts).backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    position = tmp_path_factory.mktemp("compare")
    (position / "model.py").write_text(dedent(MODEL))
    (position / "train.py").write_text(dedent(SCRIPT))
    return position


@pytest.fixture(scope="module")
def compare(gradscope_in, folder):
    """Runs the command, and returns its exit code and JSON."""

    def run(*arguments):
        done = gradscope_in(folder, "compare", *arguments, "--output-format", "json")
        assert "the target's own words" in done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


def changes(value):
    return {one["name"]: one["pairs"][1]["change"] for one in value["parameters"]}


def test_types_of_one_target(compare):
    code, value = compare("model.py", "--vary", "dtype=float32,bfloat16", "--fail-on-regression")
    assert code == 0
    assert [one["name"] for one in value["sides"]] == [
        "model.py dtype=float32", "model.py dtype=bfloat16",
    ]  # fmt: skip
    assert {one["what"] for one in value["differences"]} == {"dtype", "batch"}
    assert set(changes(value).values()) == {"within"}
    assert all(one["pairs"][1]["cosine"] > 0.99 for one in value["parameters"])


def test_a_target_that_does_not_run_is_told(gradscope_in, folder):
    done = gradscope_in(folder, "compare", "nothing.py", "model.py")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot compare `nothing.py`: its run failed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.nightly
def test_threads_and_accumulation_are_no_regressions(gradscope_in, folder):
    """The same training three times; only the order of its sums is another."""
    for name, threads, parts in (("base", 1, 1), ("threads", 2, 1), ("parts", 1, 4)):
        done = gradscope_in(folder, "run", "-q", "--save", name, "train.py", threads, parts)
        assert done.returncode == 0, done.stderr
        (folder / name).rename(folder / f"{name}.gradscope")
    sides = [f"{name}.gradscope" for name in ("base", "threads", "parts")]
    done = gradscope_in(
        folder, "compare", *sides, "--fail-on-regression", "--tolerance", "0.001",
        "--output-format", "json",
    )  # fmt: skip
    value = json.loads(done.stdout)
    assert (done.returncode, value["verdict"]["regressions"]) == (0, [])
    (loss,) = [curve for curve in value["curves"] if curve["curve"] == "loss"]
    assert [parting["first_beyond"] for parting in loss["partings"][1:]] == [None, None]
    told = {one["what"]: one["values"] for one in value["differences"]}
    assert told["backward passes per step"] == ["1", "1", "4"]
    assert told["batch"] == ["float32[256, 64]", "float32[256, 64]", "float32[64, 64]"]
