"""The recordings of all ranks, of which some are missing, unfinished or unreadable."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from gradscope.integrations import saved_recording
from gradscope.integrations.saved_recording import SavedRecording
from gradscope.recording.evidence.ranks import RankIdentity
from gradscope.recording.store import save_recording
from gradscope.session.api import inspect

RANKS = 3


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Recordings of three ranks, and that of the first one."""
    monkeypatch.setattr(saved_recording, "_WAIT", 0.2)
    net = nn.Linear(2, 1)
    recording = inspect(net, torch.ones(3, 2), lambda out: out.mean(), probe_steps=0).recording
    for rank in range(RANKS):
        save(tmp_path, recording, rank)
    file = tmp_path / "run.rank0.gradscope"
    return tmp_path, recording, SavedRecording(file=file, rank=0)


def save(folder, recording, rank, job="one", **changes):
    identity = RankIdentity(
        rank=rank, local_rank=rank, world_size=RANKS, backend="gloo", job=job, host="here",
        started=0.0, clock=0.0,
    )  # fmt: skip
    own = replace(recording, evidence=(*recording.evidence, identity), finished=True, **changes)
    save_recording(own, folder / f"run.rank{rank}.gradscope", force=True)


def test_all_ranks_are_read(job):
    found = job[2].of_all_ranks()
    assert len(found.recordings) == RANKS
    assert not found.missing


def test_unreadable_rank_is_named_and_the_others_are_read(job):
    folder, _, saved = job
    (folder / "run.rank1.gradscope").write_bytes(b"no recording")
    found = saved.of_all_ranks()
    assert len(found.recordings) == RANKS - 1
    ((rank, reason),) = found.missing
    assert rank == 1
    assert "run.rank1.gradscope" in reason


def test_missing_rank_and_rank_of_another_job_are_named(job):
    folder, recording, saved = job
    (folder / "run.rank1.gradscope").unlink()
    save(folder, recording, 2, job="other")
    assert saved.of_all_ranks().missing == (
        (1, "there is no run.rank1.gradscope"),
        (2, "run.rank2.gradscope is of another job"),
    )
