"""Ranks that train on the same batches."""

import pytest

from tests.rules.ranks.running import clean, found

SAME_SEED = """
draws = torch.Generator().manual_seed(100)  # FAULT
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(20):
    x, y = batch()
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


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
