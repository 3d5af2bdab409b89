"""`gradscope run` with the real torch: a script trains as it does under python, and is judged."""

import json
import os
import subprocess
import sys
from textwrap import dedent

import pytest

from gradscope.recording.store import load_recording

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name not in ("RANK", "COLUMNS")},
    "_TYPER_FORCE_DISABLE_TERMINAL": "1",
}

SCRIPT = """
    import os
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Numbers(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, place):
            return torch.full((3,), place / 12), torch.tensor([place / 6])

    def train(loader):
        for inputs, targets in loader:
            ZERO
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            print(loss.item().hex(), norm.item().hex())

    if __name__ == "__main__":
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for method in METHODS:
            options = dict(num_workers=1, multiprocessing_context=method)
            train(DataLoader(Numbers(), batch_size=4, shuffle=True, **options))
        print(torch.get_num_threads(), torch.rand(1).item().hex())
"""


def python(folder, *arguments):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


WATCHED = (
    "run", "--check", "-o", "r.json", "--save", "r.gradscope", "--output-format", "json",
    "train.py",
)  # fmt: skip


def write_script(folder, zero, methods):
    script = dedent(SCRIPT).replace("ZERO", zero).replace("METHODS", str(methods))
    (folder / "train.py").write_text(script)
    return script


def check_same_training(folder, script, plain, watched, steps):
    """Check what both printed, and that the recording has the steps and the line of backward."""
    assert plain.returncode == 0, plain.stderr
    assert watched.stdout == plain.stdout
    assert watched.returncode == 0, watched.stderr
    recording = load_recording(folder / "r.gradscope")
    assert [step.kind for step in recording.steps] == ["run"] * steps
    lines = script.splitlines()
    backward = next(event for event in recording.events if event.kind == "backward")
    assert lines[recording.sites[backward.site].line - 1].strip() == "loss.backward()"


def test_training_with_workers_is_the_same_to_the_last_bit(tmp_path, plain_script_in, gradscope_in):
    script = write_script(tmp_path, "optimizer.zero_grad()", ("fork",))
    plain, watched = plain_script_in(tmp_path), gradscope_in(tmp_path, *WATCHED)
    check_same_training(tmp_path, script, plain, watched, steps=3)


@pytest.mark.nightly
def test_training_in_a_new_process_is_the_same_to_the_last_bit(tmp_path):
    script = write_script(tmp_path, "optimizer.zero_grad()", ("fork", "spawn"))
    script = f'import sys\nassert "torch" not in sys.modules\n{script}'
    (tmp_path / "train.py").write_text(script)
    plain, watched = python(tmp_path, "train.py"), python(tmp_path, "-m", "gradscope", *WATCHED)
    check_same_training(tmp_path, script, plain, watched, steps=6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.gradscope", "r.json", "train.py"]


def test_script_without_training_imports_no_rules(tmp_path):
    script = tmp_path / "look.py"
    script.write_text(
        "import atexit, sys\nimport torch\n"
        "@atexit.register\n"
        "def tell():\n"
        "    print('rules', any(name.startswith('gradscope.rules.flow') for name in sys.modules))\n"
    )
    done = python(tmp_path, "-m", "gradscope", "run", "look.py")
    assert done.stdout == "rules False\n"
    assert "look.py never called backward" in done.stderr


def test_sick_training_fails_its_gate_with_the_line(tmp_path, gradscope_in):
    script = write_script(tmp_path, "pass", ("fork",))
    options = ("--check", "-o", "r.json", "--output-format", "json")
    done = gradscope_in(tmp_path, "run", *options, "train.py")
    assert done.returncode == 1, done.stderr
    found = json.loads((tmp_path / "r.json").read_text())["findings"]
    (finding,) = (one for one in found if one["severity"] == "error")
    assert finding["rule"] == "GS301"
    line = script.splitlines()[finding["location"]["line"] - 1].strip()
    assert line == "loss.backward()"


@pytest.mark.nightly
def test_every_rank_of_torchrun_has_its_recording(tmp_path):
    (tmp_path / "train.py").write_text(
        dedent(
            """
            import torch
            import torch.distributed as dist
            dist.init_process_group("gloo")
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                model(torch.ones(4, 2)).sum().backward()
                optimizer.step()
            print(f"rank{dist.get_rank()} ", end="", flush=True)  # in one write
            dist.destroy_process_group()
            """
        )
    )
    done = python(
        tmp_path, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "gradscope", "run", "train.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["rank0", "rank1"]
    assert done.stderr.count("gradscope run train.py") == 1
    for rank in (0, 1):
        recording = load_recording(tmp_path / f"train.rank{rank}.gradscope")
        assert len(recording.steps) == 3
