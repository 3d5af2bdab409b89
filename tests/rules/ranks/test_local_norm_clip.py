"""Clips by a norm that is not the global one."""

from dataclasses import replace

import pytest

from gradscope.rules.engine import judge_job
from tests.rules.ranks.running import clean, found, script, training

CLIP_BEFORE = training(
    """
torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # FAULT
for p in model.parameters():
    dist.all_reduce(p.grad)
    p.grad /= world
optimizer.step()
""",
    model="Net()",
    loss="3 * cross_entropy(model(x), y)",
    steps=20,
)


FSDP1_CLIP = training(
    """
torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # FAULT
optimizer.step()
""",
    setup="""
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(Net(), use_orig_params=True, device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
    loss="3 * cross_entropy(model(x), y)",
    steps=20,
)


FSDP1_HEALTHY = training(
    """
model.clip_grad_norm_(0.5)
optimizer.step()
""",
    setup="""
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
model = FSDP(Net(), use_orig_params=True, device_id=torch.device("cpu"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
    loss="3 * cross_entropy(model(x), y)",
    steps=20,
)


def test_a_clip_before_the_reduction_is_found(jobs, tmp_path):
    assert found(jobs, CLIP_BEFORE, tmp_path, "GS805").ranks


@pytest.mark.nightly
def test_a_norm_of_fsdp1_shards_is_found(jobs, tmp_path):
    assert found(jobs, FSDP1_CLIP, tmp_path, "GS805").ranks


@pytest.mark.nightly
def test_the_clip_of_fsdp1_itself_is_healthy(jobs, tmp_path):
    clean(jobs, FSDP1_HEALTHY, tmp_path)


FSDP2_CLIP = training(
    """
torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
optimizer.step()
""",
    setup="""
from torch.distributed.fsdp import fully_shard
model = Net()
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
    loss="3 * cross_entropy(model(x), y)",
    steps=8,
)


OWN_CLIP = training(
    """
shards = [p.grad.to_local() for p in model.parameters()]
norm = torch.stack([one.norm() for one in shards]).norm()
for one in shards:
    one.mul_(0.5 / norm)  # FAULT
optimizer.step()
""",
    setup="""
from torch.distributed.fsdp import fully_shard
model = Net()
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
    loss="3 * cross_entropy(model(x), y)",
    steps=8,
)


@pytest.mark.nightly
def test_a_factor_of_each_rank_on_its_shards_is_found(jobs, tmp_path):
    finding = found(jobs, OWN_CLIP, tmp_path, "GS805")
    evidence = dict(finding.evidence)
    factors = evidence["smallest_factor"], evidence["largest_factor"]
    assert evidence["difference"] == pytest.approx(factors[1] / factors[0] - 1)


def returning(recording, factor):
    """Return a recording whose clips returned another norm."""
    events = tuple(
        replace(
            event,
            numbers=tuple((k, v * factor if k == "norm" else v) for k, v in event.numbers),
        )
        if event.kind == "clip-norm"
        else event
        for event in recording.events
    )
    return replace(recording, events=events)


@pytest.mark.nightly
def test_a_returned_norm_that_is_off_by_a_known_factor_is_named(jobs, tmp_path):
    ranks = jobs.recordings(script(FSDP2_CLIP, tmp_path), tmp_path / "job")
    for factor, words in [
        (2.0, "too large by the number of shards, 2"),
        (2**0.5, "too large by the root of the number of shards, 2"),
        (0.5, "too small by the number of shards, 2"),
        (1.3, ""),
    ]:
        (finding,) = judge_job([returning(one, factor) for one in ranks]).findings
        assert finding.rule == "GS805"
        assert finding.message.endswith(words)
        assert ("too" in finding.message) == bool(words)
    for factor in (1.0, 1.009):  # rounding, and just below the tolerance
        assert not judge_job([returning(one, factor) for one in ranks]).findings


@pytest.mark.nightly
def test_a_norm_of_the_own_part_is_named(jobs, tmp_path):
    finding = found(jobs, FSDP1_CLIP, tmp_path, "GS805")
    assert finding.message.endswith("each rank returns the norm of the part that it holds")


SLICES = """
from torch.nn.utils import parameters_to_vector, vector_to_parameters

model = Net()
parameters = list(model.parameters())
flat = parameters_to_vector(parameters).detach()
size = flat.numel() // world
mine = flat[rank * size : (rank + 1) * size].clone().requires_grad_()
optimizer = torch.optim.SGD([mine], lr=0.1)
for step in range(16):
    x, y = batch()
    model.zero_grad()
    loss = 3 * cross_entropy(model(x), y)
    loss.backward()
    part = torch.empty(size)
    dist.reduce_scatter_tensor(part, parameters_to_vector([p.grad for p in parameters]))
    mine.grad = part / world
    squared = mine.grad.square().sum()
    <reduced>
    mine.grad *= (<limit> / squared.sqrt()).clamp(max=1)  # FAULT
    optimizer.step()
    whole = torch.empty_like(flat)
    dist.all_gather_into_tensor(whole, mine.detach())
    vector_to_parameters(whole, parameters)
"""


def slices(reduced, limit=0.2):
    return SLICES.replace("<reduced>", reduced).replace("<limit>", str(limit))


@pytest.mark.nightly
def test_slices_that_ranks_clip_to_one_norm_are_found(jobs, tmp_path):
    assert found(jobs, slices("pass"), tmp_path, "GS805").severity == "warning"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "body", [slices("dist.all_reduce(squared)"), slices("pass", 100)], ids=["global", "below"]
)
def test_slices_that_are_clipped_by_the_global_norm_or_not_at_all_are_healthy(jobs, tmp_path, body):
    clean(jobs, body, tmp_path)
