"""Several recordings of one job: one report, one check, and what is said of wrong ones."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from importlib.resources import files

import jsonschema
import pytest

from tests.jobs import free_port
from tests.rules.ranks.running import marked, script, training

BYPASS = training(
    optimizer="AdamW(model.parameters(), lr=3e-3)",
    loss="cross_entropy(model.module(x), y)  # FAULT",
)
FAILING = """
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(12):
    x, y = batch()
    if rank == 1 and step == 5:
        raise ValueError("a broken file")  # FAULT
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""
KILLED = FAILING.replace(
    'raise ValueError("a broken file")', "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
)
SCHEMA = json.loads(files("gradscope").joinpath("schemas/report-1.json").read_text())


@pytest.fixture(scope="module")
def bypass(jobs, tmp_path_factory):
    """The folder of a job of which every rank goes around DDP."""
    folder = tmp_path_factory.mktemp("bypass")
    path = script(BYPASS, folder)
    jobs.record(path, folder / "job")
    return folder / "job"


def report_of(command, *paths):
    code, out, err = command("report", *paths, "--output-format", "json")
    assert code == 0, err
    value = json.loads(out)
    jsonschema.validate(value, SCHEMA)
    return value


def test_ranks_in_any_order_are_one_report(command, bypass):
    value = report_of(command, bypass / "job.rank1.gradscope", bypass / "job.rank0.gradscope")
    (finding,) = value["findings"]
    assert (finding["rule"], finding["ranks"]) == ("GS802", [0, 1])
    assert [row["rank"] for row in value["ranks"]["recorded"]] == [0, 1]
    assert value["ranks"]["world_size"] == 2
    assert value["ranks"]["missing"] == []
    assert value["ranks"]["strategy"] == "DDP"


@pytest.mark.nightly
def test_a_folder_and_a_base_name_find_the_ranks(command, bypass):
    for given in (bypass, bypass / "job.gradscope"):
        assert len(report_of(command, given)["ranks"]["recorded"]) == 2


def test_one_rank_is_reported_by_itself(command, bypass):
    value = report_of(command, bypass / "job.rank1.gradscope")
    assert [row["rank"] for row in value["ranks"]["recorded"]] == [1]
    assert [finding["rule"] for finding in value["findings"]] == ["GS802"]
    text = command("report", bypass / "job.rank1.gradscope")[1]
    assert "rank 1 of 2 · DDP" in text


def test_the_names_are_those_of_the_script(command, bypass):
    names = [row["name"] for row in report_of(command, bypass)["parameters"]]
    assert names[0] == "model.body.0.weight"
    assert len(names) == len(set(names)) == 6


def test_text_and_markdown_tell_of_the_ranks(command, bypass):
    text = command("report", bypass)[1]
    assert "2 ranks · DDP · gloo" in text
    assert text.count("error[GS802]") == 1
    markdown = command("report", bypass, "--output-format", "markdown")[1]
    assert "### Ranks" in markdown


def test_a_check_takes_the_ranks_as_one(command, bypass):
    code, out, _ = command("check", bypass)
    assert code == 1
    assert out.count("GS802") == 1


def test_a_rank_that_is_given_twice_is_an_error(command, bypass, tmp_path):
    first, copy = bypass / "job.rank0.gradscope", tmp_path / "copy.gradscope"
    # A rank that reads another's recording as that ends leaves the log beside it.
    with closing(sqlite3.connect(first)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    code, _, err = command("report", first, copy)
    assert code == 2
    assert "are both of rank 0" in err


@pytest.mark.nightly
def test_ranks_of_different_jobs_are_an_error(command, jobs, bypass, tmp_path):
    jobs.record(script(BYPASS, tmp_path), tmp_path / "other")
    given = (bypass / "job.rank0.gradscope", tmp_path / "other" / "job.rank1.gradscope")
    code, _, err = command("report", *given)
    assert code == 2
    assert "are ranks of different jobs" in err


@pytest.mark.nightly
def test_the_rank_that_failed_first_is_named(command, jobs, tmp_path):
    jobs.record(script(FAILING, tmp_path), tmp_path / "job")
    value = report_of(command, tmp_path / "job")
    failure = value["ranks"]["first_failure"]
    assert (failure["rank"], failure["what"]) == (1, "ValueError: a broken file")
    states = {row["rank"]: row["state"] for row in value["ranks"]["recorded"]}
    assert states == {0: "consequence", 1: "failed"}
    assert not [one for one in value["findings"] if one["rule"] == "GS506"]
    text = command("report", tmp_path / "job")[1]
    assert "rank 1 failed first: " in text and "ended by" not in text


@pytest.mark.nightly
def test_a_rank_that_was_killed_is_told_as_lost(command, jobs, tmp_path):
    save = tmp_path / "job.gradscope"
    path = script(KILLED, tmp_path)
    ended = jobs.run(["run", "--quiet", "--save", save, path], tmp_path / "job")
    assert ended[1][0] == -signal.SIGKILL
    value = report_of(command, tmp_path / "job.rank0.gradscope", tmp_path / "job.rank1.gradscope")
    assert value["ranks"]["first_failure"]["rank"] == 1
    assert {row["rank"]: row["state"] for row in value["ranks"]["recorded"]}[1] == "lost"
    assert value["ranks"]["recorded"][1]["steps"] == 5


WAITING = """
import os, signal, threading, time

model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(6):
    x, y = batch()
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
threading.Timer(3 + rank, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
if rank == 0:
    dist.barrier()  # FAULT
time.sleep(20)
"""


@pytest.mark.nightly
def test_a_rank_that_waits_in_a_collective_is_told_with_its_line(command, jobs, tmp_path):
    save = tmp_path / "job.gradscope"
    path = script(WAITING, tmp_path)
    ended = jobs.run(["run", "--quiet", "--save", save, path], tmp_path / "job")
    assert ended[0][0] == ended[1][0] == -signal.SIGKILL
    rows = report_of(command, *sorted(tmp_path.glob("*.gradscope")))["ranks"]["recorded"]
    assert [row["state"] for row in rows] == ["lost", "lost"]
    assert "last event: barrier() begins" in rows[0]["ended"]
    assert {rows[0]["location"]["line"]} == marked(path)
    assert rows[1]["ended"].endswith("last event: step")


def launched(path, *options):
    return subprocess.run(
        [sys.executable, "-m", "gradscope", "run", "--nproc", "2", *options, path],
        cwd=path.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.mark.nightly
def test_the_launcher_reports_if_a_rank_is_killed_and_it_ends_the_others(tmp_path):
    done = launched(script(KILLED, tmp_path))
    assert done.returncode == 1
    assert done.stderr.count("rank 1 failed first") == 2  # in the header and in the last line
    assert "killed or is still running" in done.stderr
    assert len(list(tmp_path.glob("*.gradscope"))) == 2


@pytest.mark.nightly
def test_the_launcher_reports_once_and_fails_by_all_ranks(tmp_path):
    path = script(BYPASS, tmp_path)
    began = time.monotonic()
    done = launched(path, "--check")
    assert time.monotonic() - began < 240
    assert done.returncode == 1
    assert done.stderr.count("error[GS802]") == 1
    assert sorted(one.name for one in tmp_path.glob("*.gradscope")) == [
        "train.rank0.gradscope",
        "train.rank1.gradscope",
    ]


SPAWNING = """
import os

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draws = torch.Generator().manual_seed(rank)
    for _ in range(5):
        optimizer.zero_grad()
        model.module(torch.randn(8, 8, generator=draws)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(train, args=("<port>",), nprocs=2)
"""


@pytest.mark.nightly
def test_spawned_ranks_are_watched_and_reported_once(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SPAWNING.replace("<port>", str(free_port())))
    done = subprocess.run(
        [sys.executable, "-m", "gradscope", "run", "--check", path],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("error[GS802]") == 1
    assert "2 ranks · DDP · gloo" in done.stderr
    assert sorted(one.name for one in tmp_path.glob("*.gradscope")) == [
        "train.rank0.gradscope",
        "train.rank1.gradscope",
    ]
