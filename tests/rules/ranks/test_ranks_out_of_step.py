"""Ranks that make different passes."""

import pytest

from tests.rules.ranks.running import clean, found

LEAVE = """
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(20):
    x, y = batch()
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    if rank == 1 and step == 12:
        break  # FAULT
    loss.backward()
    optimizer.step()
"""


def test_a_rank_that_leaves_the_loop_early_is_found(jobs, tmp_path):
    assert found(jobs, LEAVE, tmp_path, "GS806").ranks


JOINED = """
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
model = DDP(Net())
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=3e-3)
with Join([model, optimizer]):
    for step in range(6 + 3 * rank):
        x, y = batch()
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""


@pytest.mark.nightly
def test_steps_of_a_rank_that_has_joined_are_healthy(jobs, tmp_path):
    clean(jobs, JOINED, tmp_path)
