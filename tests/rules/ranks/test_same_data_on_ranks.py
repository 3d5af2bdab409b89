"""Ranks that train on the same batches."""

import pytest
import torch

from gradscope.capture.ranks.observations import row_digests
from gradscope.recording.evidence.ranks import RankPass
from gradscope.rules.ranks.samplers import common_rows
from tests.rules.ranks.running import clean, found, training

SAME_SEED = training(
    setup="""
draws = torch.Generator().manual_seed(100)  # FAULT
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
""",
    steps=20,
)


def test_equal_seeds_of_the_data_are_found(jobs, tmp_path):
    assert found(jobs, SAME_SEED, tmp_path, "GS807").ranks


ONE_SAMPLER = """
g = torch.Generator().manual_seed(3)
inputs = torch.randn(128, 16, generator=g)
data = TensorDataset(inputs, (inputs @ teacher).argmax(1))
sampler = DistributedSampler(data, num_replicas=world, rank=0)  # FAULT
loader = DataLoader(data, batch_size=16, sampler=sampler)
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""


@pytest.mark.nightly
def test_samplers_of_the_same_rank_are_found(jobs, tmp_path):
    assert found(jobs, ONE_SAMPLER, tmp_path, "GS807").ranks


OWN_SEEDS = ONE_SAMPLER.replace("rank=0)", "rank=rank, seed=rank)")


@pytest.mark.nightly
def test_samplers_with_seeds_of_their_own_are_found(jobs, tmp_path):
    finding = found(jobs, OWN_SEEDS, tmp_path, "GS807")
    assert "a seed of its own" in finding.message


@pytest.mark.nightly
def test_samplers_with_one_seed_and_those_that_do_not_shuffle_are_not_found(jobs, tmp_path):
    clean(jobs, OWN_SEEDS.replace("seed=rank", "seed=5"), tmp_path)
    clean(jobs, OWN_SEEDS.replace("seed=rank", "seed=rank, shuffle=False"), tmp_path)


SHIFTED = """
g = torch.Generator().manual_seed(3)
inputs = torch.randn(160, 16, generator=g)
start = rank * <stride>
own = TensorDataset(inputs[start : start + 64], (inputs @ teacher).argmax(1)[start : start + 64])
loader = DataLoader(own, batch_size=16)  # FAULT
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""


def test_shares_that_are_shifted_by_some_rows_are_found(jobs, tmp_path):
    finding = found(jobs, SHIFTED.replace("<stride>", "1"), tmp_path, "GS807")
    assert "at least 94% of the rows are equal" in finding.message  # 15 of 16
    assert finding.ranks == (0, 1)


@pytest.mark.nightly
@pytest.mark.parametrize(("stride", "is_found"), [(3, True), (4, False), (64, False)])
def test_shares_with_less_than_four_fifths_in_common_are_not_found(
    jobs, tmp_path, stride, is_found
):
    body = SHIFTED.replace("<stride>", f"{stride}")
    if is_found:
        found(jobs, body, tmp_path, "GS807")
    else:
        clean(jobs, body, tmp_path)


def batch_of(rows):
    return RankPass(
        number=0,
        step=0,
        synchronisation="reduced",
        forward=None,
        backward=None,
        rows=len(rows),
        digest="",
        row_digests=row_digests(rows),
    )


def test_rows_in_common_are_counted_in_any_order():
    rows = torch.arange(48.0).reshape(12, 4)
    both = torch.cat([rows[6:].flip(0), 100 + rows[6:]])
    assert common_rows(batch_of(rows), batch_of(both)) == 0.5
    assert common_rows(batch_of(rows), batch_of(rows.flip(0))) == 1
    assert common_rows(batch_of(rows), batch_of(rows.double())) == 0
    few = rows[torch.arange(12) % 3]
    assert common_rows(batch_of(few), batch_of(few)) == 0  # they repeat within a batch
    for unread in (rows[0], rows[:, :3], rows[:, :0], rows + 0j, rows.to_sparse()):
        assert row_digests(unread) == ()


def test_a_digest_reads_elements_from_all_of_a_row():
    rows = torch.zeros(8, 3, 40, 50)
    rows[:, -1, -1, -8:] = torch.arange(8.0)[:, None]
    assert len(set(row_digests(rows.bfloat16()))) == 8
