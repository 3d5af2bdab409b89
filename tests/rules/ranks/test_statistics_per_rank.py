"""Batch normalization with the statistics of each rank."""

import pytest

from tests.rules.ranks.running import found, judged, training

SMALL_BN = """
class Norm(Net):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU())  # FAULT
model = DDP(Norm())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(20):
    x, y = batch(2)
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


def test_few_rows_per_rank_are_found(jobs, tmp_path):
    assert found(jobs, SMALL_BN, tmp_path, "GS811").ranks


SHARDED = training(
    """
optimizer.step()
<then>
""",
    setup="""
from torch.distributed.fsdp import fully_shard

class Norm(Net):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU())

model = Norm()
<first>
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
""",
)

REDUCE = "for one in model.buffers(): one.is_floating_point() and dist.all_reduce(one)"


def notes(jobs, tmp_path, first, then):
    body = SHARDED.replace("<first>", first).replace("<then>", then)
    return [one.rule for one in judged(jobs, body, tmp_path)[0]]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "first", ["pass", "for one in model.buffers(): dist.broadcast(one, src=0)"]
)
def test_running_statistics_of_fsdp_that_nobody_reduces_are_a_note(jobs, tmp_path, first):
    assert notes(jobs, tmp_path, first, "pass") == ["GS811"]


@pytest.mark.nightly
def test_running_statistics_that_the_script_reduces_are_healthy(jobs, tmp_path):
    assert notes(jobs, tmp_path, "pass", REDUCE) == []
