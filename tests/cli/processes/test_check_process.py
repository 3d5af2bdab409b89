"""`gradscope check` as a user runs it, with targets in processes of their own."""

import json
import time
from pathlib import Path
from textwrap import dedent

import pytest

from tests.nightly import some_on_push

ROOT = Path(__file__).parents[3]
GOOD = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
batch = (torch.randn(8, 3), torch.zeros(8, dtype=torch.long))
criterion = nn.CrossEntropyLoss()
"""


@pytest.fixture(scope="module")
def check(gradscope_in):
    """Runs `gradscope check` in a folder."""

    def run(folder, *arguments, is_apart=False):
        return gradscope_in(folder, "check", *arguments, is_apart=is_apart)

    return run


def write(folder, name, text):
    (folder / name).write_text(dedent(text))


def outcomes(done):
    """What the JSON says of each target: its outcome, and why it could not be judged."""
    content = json.loads(done.stdout)
    return {
        Path(target["name"]).stem: (
            target["outcome"],
            " ".join(f"{one['what']} {one['cause']} {one['help']}" for one in target["failures"]),
        )
        for target in content["targets"]
    }


def test_exploding_stack_fails_with_its_code_and_line(check):
    arguments = ("sample_models/exploding_stack.py", "--output-format", "json")
    done = check(ROOT, *arguments)
    assert done.returncode == 1, done.stderr
    (found,) = json.loads(done.stdout)["findings"]
    assert (found["rule"], found["location"]["file"]) == (
        "GS101",
        "sample_models/exploding_stack.py",
    )
    assert done.stderr == ""


def test_healthy_samples_pass(check):
    samples = ("sample_models/healthy_cnn.py", "sample_models/healthy_mlp.py")
    done = check(ROOT, *samples, "--output-format", "concise")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Passed: no findings in 2 targets.\n"


@pytest.fixture(scope="module")
def unjudged(tmp_path_factory, check):
    folder = tmp_path_factory.mktemp("unjudged")
    write(folder, "raises.py", "import torch\nimport nothing_of_that_name\n")
    write(folder, "no_batch.py", "from torch import nn\nmodel = nn.Linear(3, 4)\n")
    write(
        folder,
        "no_loss.py",
        "import torch\nmodel = torch.nn.Linear(3, 2)\nbatch = torch.ones(4, 3)",
    )
    write(folder, "no_gradient.py", GOOD + "model.requires_grad_(False)\n")
    write(folder, "leaves.py", GOOD + "import os\nos._exit(0)\n")
    write(folder, "crashes.py", GOOD + "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    write(folder, "good.py", GOOD)
    names = ("missing", "raises", "no_batch", "no_loss", "no_gradient", "leaves", "crashes", "good")
    files = (f"{name}.py" for name in names)
    return check(folder, *files, "--exit-zero", "--output-format", "json")


@pytest.mark.parametrize(
    ("name", "text"),
    some_on_push(
        [
            ("missing", "cannot open 'missing.py' there is no such file"),
            ("raises", "No module named 'nothing_of_that_name'"),
            ("no_batch", "no batch for Linear.forward(self, input)"),
            ("no_loss", "--loss"),
            ("no_gradient", "0 of 4 parameters require grad"),
            ("leaves", "ended its process with exit code 0"),
            ("crashes", "was killed by SIGSEGV"),
        ],
        3,
    ),
)
def test_what_says_nothing_of_gradients_is_not_judged(unjudged, name, text):
    assert unjudged.returncode == 2
    outcome, why = outcomes(unjudged)[name]
    assert outcome == "unjudged"
    assert text in why
    assert text.removesuffix(" there is no such file") in unjudged.stderr


def test_the_other_targets_are_judged_all_the_same(unjudged):
    assert outcomes(unjudged)["good"] == ("passed", "")
    assert 'raises.py", line 2' in unjudged.stderr  # the user's own traceback


@pytest.mark.nightly
def test_a_run_that_takes_too_long_is_ended_and_says_where_it_was(tmp_path, check):
    write(
        tmp_path,
        "slow.py",
        """
        import subprocess, sys, time

        def build_batch():
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
            with open("started", "w"): pass
            while True:
                time.sleep(0.1)

        build_batch()
        """,
    )
    start = time.monotonic()
    done = check(tmp_path, "slow.py", "--timeout", "6", is_apart=True)
    assert done.returncode == 2
    assert "slow.py took longer than 6 s" in done.stdout
    if (tmp_path / "started").exists():  # else the machine was too slow to come that far
        assert "slow.py:8 in build_batch" in done.stdout
    assert time.monotonic() - start < 40  # the process that it started holds nothing up


def test_seeds_are_judged_by_the_worst_and_told_apart(tmp_path, check):
    odd = "    for part in (model[0].weight, model[2].bias):\n        part.requires_grad_(False)\n"
    write(tmp_path, "model.py", f"{GOOD}print('x')\nif torch.initial_seed() == 8:\n{odd}")
    save = ("--save", "runs", "--output-format", "json")
    done = check(tmp_path, "model.py", "--seed", 7, "--seeds", 2, "--max-grad-norm", 1e-9, *save)
    assert done.returncode == 1, done.stderr
    content = json.loads(done.stdout)
    runs = content["targets"][0]["runs"]
    assert [run["target"]["seed"] for run in runs] == [7, 8]
    assert [run["summary"]["parameters"]["frozen"] for run in runs] == [0, 2]
    limit = next(one for one in content["findings"] if one["rule"] == "GS113")
    assert limit["seeds"] == [7, 8]
    saved = sorted(path.name for path in (tmp_path / "runs").iterdir())
    assert saved == ["model.py-seed-7.gradscope", "model.py-seed-8.gradscope"]
    again = check(tmp_path, *(f"runs/{name}" for name in saved), "--output-format", "concise")
    assert again.returncode == 0
    assert again.stdout.endswith("in 2 targets.\n")
