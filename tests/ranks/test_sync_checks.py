"""Digests of replicas that ranks compare while a job runs."""

import re
import struct
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from gradscope.capture.ranks import sync_checks
from gradscope.capture.ranks.sync_checks import Replica, SyncChecks, digests
from gradscope.capture.training.gradient_state import Entry
from gradscope.recording.evidence.ranks import RankEvent
from gradscope.recording.store import load_recording
from gradscope.rules.engine import judge_job
from tests.rules.ranks.running import script

LOOP = """
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(12):
    x, y = batch()
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    {change}
    optimizer.step()
"""
# Far below what norms in float32 show.
NOISE = "if step == 6 and rank == 1: model.module.head.bias.data[0] += 1e-7"
TEXT = re.compile(r"gradscope: rank 1 differs from rank 0 before step 6: weight of model.head.bias")


def recorded(jobs, folder, change, *options):
    path = script(LOOP.format(change=change), folder)
    save = folder / "job" / "job.gradscope"
    arguments = ["run", "--quiet", "--save", save, *options, path]
    done = jobs.run(arguments, folder / "job")
    return done, [load_recording(save.with_name(f"job.rank{rank}.gradscope")) for rank in (0, 1)]


def test_the_first_difference_is_told_recorded_and_reported(jobs, tmp_path):
    done, ranks = recorded(jobs, tmp_path, NOISE, "--sync-checks", "2")
    assert TEXT.search(done[1][2])
    assert not TEXT.search(done[0][2])
    (event,) = [e for e in ranks[1].evidence_of(RankEvent) if e.kind == "sync-difference"]
    assert (event.subject, event.step) == ("model.head.bias", 6)
    found = [one for one in judge_job(ranks).findings if one.rule == "GS801"]
    assert [(one.severity, one.step, one.ranks) for one in found] == [("warning", 6, (0, 1))]


@pytest.mark.nightly
def test_without_the_option_bits_are_not_compared(jobs, tmp_path):
    done, ranks = recorded(jobs, tmp_path, NOISE)
    assert not any("differs" in one[2] for one in done)
    assert not [one for one in judge_job(ranks).findings if one.rule == "GS801"]


def test_equal_replicas_are_equal_and_the_job_stays_the_same(jobs, tmp_path):
    bare, _ = recorded(jobs, tmp_path, "pass")
    done, ranks = recorded(jobs, tmp_path, "pass", "--force", "--sync-checks", "1")
    assert [one[1] for one in done] == [one[1] for one in bare]
    assert not any("gradscope:" in one[2] for one in done)
    assert not [e for one in ranks for e in one.evidence_of(RankEvent) if "sync" in e.kind]


class Notes:
    """Takes what a check notes, as the log of a rank does."""

    def __init__(self):
        self.kinds = []

    def note(self, kind, *_):
        self.kinds.append(kind)


@pytest.fixture
def store(monkeypatch):
    """The key-value store of a job of two ranks, of which this process is the second."""
    found = dist.HashStore()
    monkeypatch.setattr(sync_checks, "_store", lambda: found)
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    found.set_timeout(timedelta(seconds=1))
    return found


def replica(values=(1.0, 2.0), gradient=(0.5, 0.25)):
    grad = None if gradient is None else torch.tensor(gradient)
    return Replica(Entry(lambda: None, name="w"), torch.tensor(values), grad)


def checked(replicas):
    notes = Notes()

    class Training:
        take_in = staticmethod(lambda: None)
        models = type("Models", (), {"records": type("Records", (), {"names": []})})

    checks = SyncChecks(Training(), notes, 1)
    checks.check(0, replicas, None)
    return notes.kinds, checks.is_due(1)


def test_a_rank_that_never_answers_ends_the_checks_in_time(store, monkeypatch, capsys):
    monkeypatch.setattr(sync_checks, "WAIT_SECONDS", 0.05)
    assert checked([replica()]) == (["sync-ended"], False)
    assert "rank 0 did not answer within 0.05 s" in capsys.readouterr().err


def test_a_store_that_is_gone_ends_the_checks(store, monkeypatch, capsys):
    def gone(_keys):
        raise dist.DistNetworkError("Connection reset by peer")

    monkeypatch.setattr(sync_checks, "_store", lambda: type("S", (), {"check": staticmethod(gone)}))
    assert checked([replica()]) == (["sync-ended"], False)
    assert "rank 0 is gone (Connection reset" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("own", "kinds"),
    [
        (replica(), []),
        (replica(gradient=(0.5, 0.25000003)), ["sync-difference"]),
        (replica(values=(1.0, 2.0000002)), ["sync-difference"]),
        (replica(gradient=None), ["sync-difference"]),
        (replica(values=(1.0, -0.0), gradient=(0.0, 0.0)), ["sync-difference"]),
    ],
)
def test_one_bit_makes_a_difference(store, own, kinds):
    store.set(sync_checks._key(0), digests([replica()]))
    assert checked([own])[0] == kinds


def test_other_numbers_of_parameters_are_told(store, capsys):
    store.set(sync_checks._key(0), digests([replica(), replica()]))
    assert checked([replica()]) == (["sync-ended"], False)
    assert "compares 1 parameters, rank 0 2" in capsys.readouterr().err


def digest_of(tensor):
    (found,) = struct.unpack_from("<Q", digests([Replica(Entry(lambda: None), tensor, None)]), 8)
    return found


@pytest.fixture(params=[True, False], ids=["hash", "no-hash"])
def has_hash(request, monkeypatch):
    if not request.param:
        monkeypatch.delattr(torch, "hash_tensor", raising=False)


DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn)


@pytest.mark.usefixtures("has_hash")
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_changed_bit_changes_the_digest_in_every_type(dtype):
    one = torch.arange(1, 700).remainder(13).to(dtype)
    for place in (0, 300, 698):
        other = one.clone()
        other.view(torch.uint8)[place * one.element_size()] ^= 1
        assert digest_of(one) == digest_of(one.clone()) != digest_of(other)


@pytest.mark.usefixtures("has_hash")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize(
    "places", [(0, 1), (3, 255), (0, 256), (5, 5 + 256 * 8), (300, 2050), (2048, 2057)]
)
def test_swapped_elements_change_the_digest(dtype, places):
    one = torch.randn(2058, generator=torch.Generator().manual_seed(0)).to(dtype)
    first, second = places
    other = one.clone()
    other[first], other[second] = one[second].clone(), one[first].clone()
    assert not torch.equal(one, other)
    assert digest_of(one) != digest_of(other)


def test_swapped_rows_and_a_transposed_matrix_change_the_digest():
    one = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    digest = digest_of(one)
    assert digest not in {digest_of(one.flip(0)), digest_of(one.roll(1, 0)), digest_of(one.T)}
    assert digest == digest_of(one.T.contiguous().T)
