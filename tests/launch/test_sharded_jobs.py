"""Sharded jobs, whose weights are freed between uses, train as without gradscope."""

import subprocess
import sys
from pathlib import Path

import pytest

from gradscope.recording.store import load_recording
from tests.launch.conftest import ENVIRONMENT
from tests.launch.sharded_job import KINDS

JOB = Path(__file__).with_name("sharded_job.py")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def python(folder, *arguments):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.nightly
def test_watching_one_rank_changes_nothing_and_finds_nothing(tmp_path):
    done = python(tmp_path, JOB, "watch")
    assert done.returncode == 0, done.stderr
    assert "recording ended" not in done.stderr
    assert done.stdout.splitlines()[len(KINDS) :] == [f"{kind} 6 ()" for kind in KINDS]


@pytest.mark.nightly
def test_two_ranks_of_torchrun_train_as_they_do_alone(tmp_path):
    bare = python(tmp_path, *TORCHRUN, JOB)
    assert bare.returncode == 0, bare.stderr
    done = python(tmp_path, *TORCHRUN, "-m", "gradscope", "run", "--save", "job.gradscope", JOB)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(bare.stdout.splitlines())
    assert "recording ended" not in done.stderr
    assert "error[" not in done.stderr and "warning[" not in done.stderr
    for rank in (0, 1):
        recording = load_recording(tmp_path / f"job.rank{rank}.gradscope")
        assert len(recording.steps) == 6 * len(KINDS)
        assert recording.captured_steps
        names = {record.name for record in recording.parameters}
        assert not any(name.startswith("parameter") for name in names), names
