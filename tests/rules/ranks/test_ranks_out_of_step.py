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


ORDER = """
from torch.distributed.fsdp import fully_shard

class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.head = nn.Linear(16, 4)

    def forward(self, x, left_out):
        for at, block in enumerate(self.blocks):
            if at != left_out:
                x = x + block(x).relu()  # FAULT
        return self.head(x)

model = Deep()
for block in model.blocks:
    fully_shard(block)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
picks = torch.Generator().manual_seed(<seed>)
for step in range(10):
    x, y = batch()
    optimizer.zero_grad()
    left_out = torch.randint(1, 4, (), generator=picks).item()
    loss = cross_entropy(model(x, left_out), y)
    loss.backward()
    optimizer.step()
"""


def test_ranks_that_call_different_sharded_modules_are_found(jobs, tmp_path):
    assert "blocks." in found(jobs, ORDER.replace("<seed>", "rank"), tmp_path, "GS806").message


@pytest.mark.nightly
def test_ranks_that_leave_out_the_same_sharded_module_are_healthy(jobs, tmp_path):
    clean(jobs, ORDER.replace("<seed>", "3"), tmp_path)
