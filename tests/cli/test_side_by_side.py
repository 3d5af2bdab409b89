"""Targets and seeds of a check that run at the same time."""

import json

import pytest

from gradscope.check.options import PlannedTarget
from gradscope.cli.checking import usual_limit
from gradscope.cli.processes import side_by_side
from gradscope.cli.processes.isolation import Job
from gradscope.cli.processes.side_by_side import PlannedJob, run_all
from gradscope.target.options import TargetOptions, Trial
from tests.cli.processes.test_check_process import GOOD, write

WAITS = """
import os, time
open("{mine}", "w").close()
while not os.path.exists("{other}"):
    time.sleep(0.02)
"""


@pytest.fixture
def targets(tmp_path):
    """A target that prints and is fine, one with a finding, and one that raises."""
    write(tmp_path, "fine.py", f"{GOOD}print('of fine', torch.initial_seed())\n")
    write(tmp_path, "sick.py", GOOD.replace("nn.Tanh()", "nn.Dropout(1.0)"))
    write(tmp_path, "raises.py", "raise ValueError('of raises')\n")
    return ("fine.py", "sick.py", "raises.py")


def test_several_jobs_give_what_one_gives(tmp_path, targets, gradscope_in):
    def check(jobs):
        arguments = (*targets, "--seeds", 2, "--output-format", "json", "--jobs", jobs)
        return gradscope_in(tmp_path, "check", *arguments)

    one, several = check(1), check(4)
    contents = [json.loads(done.stdout) for done in (one, several)]
    commands = [content.pop("command") for content in contents]
    assert commands[0].replace("--jobs 1", "--jobs 4") == commands[1]
    assert contents[0] == contents[1]
    assert [target["name"] for target in contents[1]["targets"]] == list(targets)
    assert one.returncode == several.returncode == 2
    assert one.stderr == several.stderr
    assert several.stderr.startswith("of fine 0\nof fine 1\n")
    assert several.stderr.count("error: while importing") == 2


def test_jobs_really_run_at_the_same_time(tmp_path, gradscope_in):
    for mine, other in (("first", "second"), ("second", "first")):
        write(tmp_path, f"{mine}.py", WAITS.format(mine=mine, other=other) + GOOD)
    done = gradscope_in(tmp_path, "check", "first.py", "second.py", "--jobs", 2, "--timeout", 100)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("count", "limit", "expected"),
    [(1, 4, None), (2, 1, 4), (2, 2, 4), (3, 3, 2), (8, 2, 1), (20, 8, 1)],
)
def test_threads_depend_on_the_number_of_jobs_alone(tmp_path, monkeypatch, count, limit, expected):
    given = []
    write(tmp_path, "m.py", GOOD)
    monkeypatch.setattr(side_by_side, "cores", lambda: 8)
    monkeypatch.setattr(side_by_side, "run_apart", lambda *args: given.append(args[-1]))
    monkeypatch.setattr(
        side_by_side,
        "_side_by_side",
        lambda planned, limit, threads: [given.append(threads)] * len(planned),
    )
    job = Job(name="m.py", spec="m.py", options=TargetOptions(), trial=Trial(), command="", level=0)
    run_all([PlannedJob(job=job, folder=tmp_path, timeout=None)] * count, limit)
    assert set(given) == {expected}


@pytest.mark.parametrize(
    ("devices", "expected"), [((None, "cpu"), 8), ((None, "cuda:1"), 1), (("mps",), 1)]
)
def test_an_accelerator_is_not_shared(tmp_path, monkeypatch, devices, expected):
    monkeypatch.setattr("gradscope.cli.checking.cores", lambda: 8)
    planned = [
        PlannedTarget(name="m", spec="m", folder=tmp_path, options=TargetOptions(device=device))
        for device in devices
    ]
    assert usual_limit(planned) == expected


def test_progress_tells_the_edits_of_a_target_apart(tmp_path):
    options = TargetOptions(seed=0)
    job = Job(name="m.py", spec="m.py", options=options, trial=Trial(), command="", level=0)
    titles = [
        PlannedJob(job=job, folder=tmp_path, timeout=None, edit=edit).title for edit in (None, 1, 2)
    ]
    assert titles == ["m.py, seed 0", "m.py with edit 1", "m.py with edit 2"]
