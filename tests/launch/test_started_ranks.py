"""Ranks that a script, a trainer or a launcher starts are watched, and reported on once."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec

import pytest

from gradscope.cli.run.planned import recording_location
from gradscope.cli.run.recorders import RankPlan
from gradscope.launch.options import WatchOptions
from gradscope.launch.program import Program
from gradscope.launch.started_ranks import VARIABLE, StartedRanks
from gradscope.recording.evidence.training import RunEnding
from gradscope.recording.store import load_recording
from tests.jobs import free_port
from tests.launch.conftest import ENVIRONMENT
from tests.nightly import some_on_push

LOOP = """
import os, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

assert not [name for name in ("PYTHONPATH", "GRADSCOPE_RANKS") if name in os.environ]
assert not [entry for entry in sys.path if "gradscope/launch" in entry]

def train():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(rank)
    for step in range(5):
        optimizer.zero_grad()
        model.module(torch.randn(8, 8, generator=draws)).square().mean().backward()
        optimizer.step()
    sys.stdout.write(f"{rank} {sys.argv[1:]} {model.module.weight.sum().item().hex()}\\n")
    dist.destroy_process_group()

"""
TRAINER = """
import subprocess
os.environ.update(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="<port>")
if "LOCAL_RANK" not in os.environ:
    os.environ.update(LOCAL_RANK="0")
    other = dict(os.environ, LOCAL_RANK="1")
    subprocess.Popen([sys.executable, "-u", *sys.argv], env=other)
    subprocess.run([sys.executable, "-c", "import os; assert os.environ['LOCAL_RANK'] == '0'"])
os.environ["RANK"] = os.environ["LOCAL_RANK"]
train()
"""
"""Starts the second rank by running itself again, as trainers do, and is the first."""

LAUNCHER = """
import subprocess, sys, torch
launcher = "-m torch.distributed.run --standalone --nproc-per-node 2"
subprocess.run(["bash", "-c", f"{sys.executable} {launcher} rank.py a -b"], check=True)
"""

LIGHTNING = """
import sys
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if __name__ == "__main__":
    L.seed_everything(0)
    x = torch.randn(64, 8)
    data = TensorDataset(x, x[:, :4].argmax(1))
    trainer = L.Trainer(
        devices=2, accelerator="cpu", strategy=sys.argv[1], max_epochs=2, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Lit(), DataLoader(data, batch_size=8, shuffle=True))
    weights = [p.detach().double().sum().item().hex() for p in trainer.model.parameters()]
    sys.stdout.write(f"{trainer.global_rank} {weights}\\n")
"""

NOTEBOOK = """
import sys
import torch
from accelerate import Accelerator, debug_launcher, notebook_launcher
from torch import nn

def train(scale=1.0):
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    draws = torch.Generator().manual_seed(accelerator.process_index)
    for _ in range(5):
        optimizer.zero_grad()
        loss = model.module(torch.randn(8, 8, generator=draws)).square().mean() * scale
        accelerator.backward(loss)
        optimizer.step()
    sys.stdout.write(f"{accelerator.process_index} {loss.item().hex()}\\n")
    accelerator.end_training()

if __name__ == "__main__":
    match sys.argv[1:]:
        case ["debug"]:
            debug_launcher(train, (1.0,), num_processes=2)
        case ["notebook"]:
            notebook_launcher(train, (1.0,), num_processes=2, use_port="<port>")
        case _:
            train()
"""


def python(folder, *arguments):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={name: value for name, value in ENVIRONMENT.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def run(folder, *arguments):
    return python(folder, "-m", "gradscope", "run", "--check", *arguments)


def recorded(folder, stem):
    names = [f"{stem}.rank{rank}.gradscope" for rank in (0, 1)]
    assert sorted(path.name for path in folder.glob("*.gradscope")) == names
    return [load_recording(folder / name) for name in names]


def test_the_rank_that_starts_the_others_reports_on_all(tmp_path, gradscope_in):
    text = LOOP + TRAINER.replace("<port>", str(free_port()))
    (tmp_path / "train.py").write_text(text)
    done = gradscope_in(tmp_path, "run", "--check", "train.py", "a", "-b")
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("error[GS802]") == 1
    assert "2 ranks · DDP · gloo" in done.stderr
    assert done.stderr.count("Failed: 1 error.") == 1
    assert [line[:13] for line in sorted(done.stdout.splitlines())] == [
        f"{rank} ['a', '-b']" for rank in (0, 1)
    ]
    assert [len(one.steps) for one in recorded(tmp_path, "train")] == [5, 5]


UNTRAINED = """
import sys, torch
import torch.multiprocessing as mp

def worker(rank):
    if rank == 1:
        raise FileNotFoundError("no such data: train.bin")
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)

if __name__ == "__main__":
    mp.start_processes(worker, nprocs=2, start_method="fork")
"""


@pytest.mark.parametrize(
    ("option", "kind"), some_on_push([((), "note"), (("--check",), "error")], {0})
)
def test_ranks_that_end_before_they_train_are_one_line(tmp_path, gradscope_in, option, kind):
    (tmp_path / "train.py").write_text(UNTRAINED)
    port = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    done = gradscope_in(tmp_path, "run", *option, "train.py", **port)
    assert done.returncode == 1, done.stderr
    (told,) = [line for line in done.stderr.splitlines() if line.startswith(f"{kind}: ")]
    assert "none ran a backward: rank 1: FileNotFoundError: no such data: train.bin" in told
    assert "train.py:7; rank 0: no ending" in told
    assert "No findings" not in done.stderr


def test_names_are_those_of_the_script_and_ranks_of_an_earlier_run_are_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = Program(name="torch.distributed.run", arguments=("--x", "train.py"), is_module=True)
    (tmp_path / "train.rank0.gradscope").touch()
    location = recording_location(program, None, rank=None, force=False)
    assert location.choose().name == "train-2.gradscope"
    location = recording_location(program, None, rank=1, force=False)
    assert location.choose().name == "train.rank1.gradscope"


@pytest.mark.nightly
def test_a_launcher_behind_a_shell_passes_the_wish_on(tmp_path):
    (tmp_path / "rank.py").write_text(LOOP + "train()")
    (tmp_path / "train.py").write_text(LAUNCHER)
    done = run(tmp_path, "--stop-after", "3", "train.py")
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("error[GS802]") == 1
    for recording in recorded(tmp_path, "train"):
        assert len(recording.steps) == 3
        (ending,) = recording.evidence_of(RunEnding)
        assert (ending.kind, ending.message) == ("stopped", "--stop-after 3")


def _needs(library):
    """Skip a test without a library; its processes import it, and not this one."""
    if find_spec(library) is None:
        pytest.skip(f"needs {library}")


@pytest.mark.nightly
@pytest.mark.parametrize("strategy", ["ddp", "ddp_spawn", "ddp_fork"])
def test_ranks_of_lightning_are_watched(tmp_path, strategy):
    _needs("lightning")
    (tmp_path / "train.py").write_text(LIGHTNING)
    bare = python(tmp_path, "train.py", strategy)
    assert bare.returncode == 0, bare.stderr
    done = run(tmp_path, "train.py", strategy)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(bare.stdout.splitlines())
    assert "2 ranks · DDP · gloo" in done.stderr
    assert "0 errors" in done.stderr or "No findings" in done.stderr, done.stderr
    recordings = recorded(tmp_path, "train")
    assert [len(one.steps) for one in recordings] == [8, 8]
    assert all(one.parameters[0].name == "Lit.net.0.weight" for one in recordings)


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["debug", "notebook", "launch", "launched"])
def test_ranks_of_accelerate_are_watched(tmp_path, how):
    _needs("accelerate")
    script = tmp_path / "train.py"
    script.write_text(NOTEBOOK.replace("<port>", str(free_port())))
    launch = ("accelerate.commands.launch", "--multi_gpu", "--num_machines", "1")
    options = ("--num_processes", "2", "--mixed_precision", "no", "--dynamo_backend", "no")
    launcher = ("-m", *launch, *options)
    command = (*launcher, "train.py") if how.startswith("launch") else ("train.py", how)
    bare = python(tmp_path, *command)
    if how == "launched":  # the launcher starts gradscope
        done = python(tmp_path, *launcher, "-m", "gradscope", "run", "--check", "train.py")
    else:
        done = run(tmp_path, *command)
    assert done.returncode == 1, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(bare.stdout.splitlines())
    assert done.stderr.count("error[GS802]") == 1
    line = script.read_text().split("loss = model.module")[0].count("\n") + 1
    assert f"train.py:{line} in train" in done.stderr
    assert [len(one.steps) for one in recorded(tmp_path, "train")] == [5, 5]


SHOW = "import json, os, sys; print(json.dumps([dict(os.environ), sys.path, sys.orig_argv]))"


def started(*command, **options):
    with StartedRanks("plan").watched():
        done = subprocess.run([*command], stdout=subprocess.PIPE, text=True, check=True, **options)
    return json.loads(done.stdout)


def test_a_process_that_is_no_rank_runs_as_it_would(tmp_path):
    before = subprocess.Popen.__init__
    environment, path, words = started(sys.executable, "-c", SHOW)
    assert subprocess.Popen.__init__ is before
    assert path == json.loads(subprocess.check_output([sys.executable, "-c", SHOW]))[1]
    assert words == [sys.executable, "-c", SHOW]
    assert environment[VARIABLE].endswith("\nplan")
    # It passes the wish on, but the script itself does not have it.
    assert VARIABLE not in os.environ


def test_other_commands_and_environments_of_bytes_are_left_alone():
    with StartedRanks("plan").watched():
        out = subprocess.check_output(["/bin/cat", "/proc/self/environ"])
        subprocess.check_call([sys.executable, "-c", ""], env={b"A": b"b"})
        with suppress(TypeError):
            subprocess.Popen()
        with pytest.raises(FileNotFoundError):
            subprocess.Popen(["python-that-is-missing"], env={"RANK": "1"})
    assert VARIABLE.encode() not in out


def test_a_rank_of_another_environment_or_with_gradscope_off_runs_as_it_would(tmp_path):
    file = tmp_path / "show.py"
    file.write_text(SHOW)
    off = started(sys.executable, file, env={**ENVIRONMENT, "RANK": "1", "GRADSCOPE": "off"})
    assert off[2] == [sys.executable, str(file)]
    hidden = tmp_path / "sitecustomize.py"
    hidden.write_text("import os; os.environ['SITE'] = 'loaded'")
    environment = {**ENVIRONMENT, "PYTHONPATH": str(tmp_path)}
    assert started(sys.executable, file, env=environment)[0]["SITE"] == "loaded"


def test_a_rank_starts_no_ranks(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    assert VARIABLE not in started(sys.executable, "-c", SHOW)[0]


FLAGS = [(), ("-u",), ("-W", "ignore"), ("-Xutf8", "-uB"), ("-uWignore",)]


@pytest.mark.parametrize("flags", some_on_push([pytest.param(flags) for flags in FLAGS], {3}))
def test_options_of_the_interpreter_are_kept(tmp_path, flags):
    (tmp_path / "show.py").write_text(SHOW)
    plan = RankPlan(base=tmp_path / "x.gradscope", command="run", watch=WatchOptions())
    environment = {**ENVIRONMENT, "LOCAL_RANK": "1"}
    for program in (["show.py"], ["-m", "show"]):
        with StartedRanks(plan.text).watched():
            out = subprocess.check_output(
                [sys.executable, *flags, *program, "-x"], env=environment, cwd=tmp_path
            )
        _, _, words = json.loads(out)
        assert words[1 : len(flags) + 1] == list(flags)
        assert words[len(flags) + 1].endswith("start_rank.py")
        assert words[len(flags) + 2 :] == [*program, "-x"]


def test_a_plan_is_the_same_after_its_way_through_the_environment(tmp_path):
    watch = WatchOptions(budget="none", tensors_at=[3], sync_checks=5, max_steps=7)
    plan = RankPlan(base=tmp_path / "a.gradscope", command="gradscope run a.py", watch=watch)
    assert RankPlan.of(plan.text) == plan
