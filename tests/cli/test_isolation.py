"""What a target may do to the process it runs in, and what ends a check while one runs."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gradscope.check.results import Failure
from gradscope.cli.processes.isolation import (
    Job,
    failure_in,
    read_failure,
    run_apart,
    write_failure,
)
from gradscope.errors import GradscopeError
from gradscope.recording.records import Recording
from gradscope.target.options import TargetOptions, Trial
from tests.cli.processes.test_check_process import GOOD, write
from tests.conftest import ENVIRONMENT

FORWARD = """
import asyncio, os, shutil, tempfile
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
    def forward(self, x):
        {}
        return self.layer(x)
model = Net()
batch = (torch.randn(8, 3), torch.zeros(8, dtype=torch.long))
criterion = nn.CrossEntropyLoss()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder for temporary files."""
    position = tmp_path / "tmp"
    position.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(position))
    monkeypatch.setenv("TMPDIR", str(position))
    return position


@pytest.fixture
def run(tmp_path, folder, capfd):
    """Runs a file's code under watch; gives what comes back, and what was told."""

    def run(code, timeout=None):
        write(tmp_path, "model.py", code)
        job = Job(
            name="model.py",
            spec="model.py",
            options=TargetOptions(seed=0),
            trial=Trial(),
            command="gradscope check model.py",
            level=0,
        )
        return run_apart(job, tmp_path, timeout), capfd.readouterr().err

    return run


@pytest.mark.parametrize(
    ("code", "what", "cause"),
    [
        (
            FORWARD.format("raise KeyboardInterrupt"),
            "model.py ended its process with exit code 130",
            "the code raised KeyboardInterrupt, or sent itself SIGINT",
        ),
        pytest.param(
            FORWARD.format("raise asyncio.CancelledError('no time')"),
            "forward failed with input float32[8,3]: CancelledError: no time",
            None,
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            FORWARD.format(
                "[shutil.rmtree(os.path.join(tempfile.gettempdir(), name))"
                " for name in os.listdir(tempfile.gettempdir()) if name.startswith('gradscope-')]"
            ),
            "model.py ended its process with exit code 2",
            "the code removed the temporary folder",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "import json\njson.dumps = lambda *values: '{}'\nraise ValueError",
            "model.py ended its process with exit code 2",
            "the error on stderr could not be written",
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["KeyboardInterrupt", "BaseException", "no folder", "no reason"],
)
def test_why_a_run_could_not_be_judged_is_true(run, code, what, cause):
    seen, told = run(code)
    assert isinstance(seen, Failure)
    assert seen.what == what
    assert seen.cause is None if cause is None else seen.cause.startswith(cause)
    assert what in told
    assert "bug in gradscope" not in told


@pytest.mark.nightly
def test_what_was_seen_by_a_process_that_does_not_end_is_judged(run, folder, monkeypatch):
    whole = subprocess.Popen.wait

    def wait(process, timeout=None):
        if timeout is None:
            return whole(process)
        while not list(folder.glob("gradscope-*/run.gradscope")):
            time.sleep(0.05)
        raise subprocess.TimeoutExpired("", timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    thread = "threading.Thread(target=time.sleep, args=(100,)).start()"
    seen, told = run(f"{GOOD}\nimport threading, time\n{thread}\n", timeout=60)
    assert isinstance(seen, Recording)
    assert "note: model.py did not exit after its gradients were recorded" in told


@pytest.mark.nightly
def test_modules_copies_and_a_crash_at_the_end_do_not_come_in_the_way(run, tmp_path):
    """Of modules beside the target, the process's copy, and a crash after all was recorded."""
    for name in ("sqlite3", "json", "rich"):
        write(tmp_path, f"{name}.py", "raise RuntimeError('not this one')\n")
    forked = """
import atexit, os
if os.fork():
    os.wait()
    atexit.register(os.kill, os.getpid(), 11)
else:
    model.requires_grad_(False)
"""
    seen, told = run(GOOD + forked)
    assert isinstance(seen, Recording), told
    assert all(parameter.requires_grad for parameter in seen.parameters)
    assert "note: model.py was killed by SIGSEGV after its gradients were recorded" in told


@pytest.mark.parametrize("text", ["", "{}", "[]", "{", '{"what": 1, "odd": 2}', "\xff"])
def test_unreadable_failures_are_none(tmp_path, text):
    write_failure(tmp_path, GradscopeError("what", help="help"))
    assert read_failure(tmp_path, 3) == Failure(what="what", help="help", seed=3)
    failure_in(tmp_path).write_text(text, encoding="latin-1")
    assert read_failure(tmp_path, 3) is None


@pytest.mark.parametrize(
    ("sign", "again", "seeds", "code", "leaves"),
    [
        (signal.SIGTERM, True, 1, 128 + signal.SIGTERM, 0),
        pytest.param(signal.SIGTERM, False, 2, 143, 0, marks=pytest.mark.nightly),
        pytest.param(signal.SIGHUP, False, 1, 129, 0, marks=pytest.mark.nightly),
        pytest.param(signal.SIGINT, False, 1, 130, 0, marks=pytest.mark.nightly),
        pytest.param(signal.SIGKILL, False, 1, -signal.SIGKILL, 1, marks=pytest.mark.nightly),
    ],
)
def test_ending_the_check_ends_what_it_runs(tmp_path, folder, sign, again, seeds, code, leaves):
    if sign == signal.SIGKILL and sys.platform != "linux":
        pytest.skip("only Linux tells a process that its parent was killed")
    if signal.getsignal(sign) is signal.SIG_IGN:
        pytest.skip("this process was told to ignore it, as by nohup, and so is what it starts")
    write(
        tmp_path,
        "slow.py",
        "import time\nopen('started', 'w').close()\ntime.sleep(100)\n",
    )
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "gradscope",
            "check",
            "slow.py",
            "--seeds",
            str(seeds),
            "--jobs",
            "2",
        ],
        cwd=tmp_path,
        env={**ENVIRONMENT, "TMPDIR": str(folder)},
        stderr=subprocess.PIPE,
    )
    while not (tmp_path / "started").exists():
        time.sleep(0.05)
    process.send_signal(sign)
    if again:
        process.send_signal(sign)
    process.communicate(timeout=30)  # until nobody holds its stderr any more
    assert process.returncode == code
    assert len(list(folder.glob("gradscope-*"))) == leaves


@pytest.mark.nightly
def test_closed_streams_change_no_exit_code(tmp_path, server):
    write(tmp_path, "good.py", GOOD)
    first = Path(__file__).parents[1] / "closed_streams.py"
    assert server.run(tmp_path, ["check", "good.py"], ENVIRONMENT, first=first).returncode == 0
