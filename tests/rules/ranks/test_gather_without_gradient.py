"""Results of collectives without a gradient."""

import pytest

from tests.rules.ranks.running import clean, found

GATHER = """
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
def gather(t):
    parts = [torch.empty_like(t) for _ in range(world)]
    dist.all_gather(parts, t)  # FAULT
    return torch.cat(parts)
for step in range(20):
    x, y = batch()
    optimizer.zero_grad()
    z = gather(model(x))
    z2 = model(x + 0.1 * torch.randn(x.shape))
    logits = z2 @ z.t()
    loss = cross_entropy(logits, torch.arange(16) + rank * 16)
    loss.backward()
    optimizer.step()
"""


GATHER_HEALTHY = """
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
def gather(t):
    parts = [torch.empty_like(t) for _ in range(world)]
    dist.all_gather(parts, t)
    parts[rank] = t
    return torch.cat(parts)
for step in range(20):
    x, y = batch()
    optimizer.zero_grad()
    z = gather(model(x))
    z2 = model(x + 0.1 * torch.randn(x.shape))
    logits = z2 @ z.t()
    loss = cross_entropy(logits, torch.arange(16) + rank * 16)
    loss.backward()
    optimizer.step()
"""


GATHER_METRIC = """
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(20):
    x, y = batch()
    optimizer.zero_grad()
    logits = model(x)
    parts = [torch.empty_like(logits) for _ in range(world)]
    dist.all_gather(parts, logits)
    accuracy = (torch.cat(parts)[:16].argmax(1) == y).float().mean()
    loss = cross_entropy(logits, y)
    loss.backward()
    optimizer.step()
"""


def test_gathered_features_in_the_loss_are_found(jobs, tmp_path):
    assert found(jobs, GATHER, tmp_path, "GS808").ranks


@pytest.mark.nightly
def test_a_script_that_puts_its_own_features_back_is_healthy(jobs, tmp_path):
    clean(jobs, GATHER_HEALTHY, tmp_path)


@pytest.mark.nightly
def test_gathered_logits_for_a_metric_are_healthy(jobs, tmp_path):
    clean(jobs, GATHER_METRIC, tmp_path)


BY_CALLERS = """
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
def gathered(t):
    parts = [torch.empty_like(t) for _ in range(world)]
    dist.all_gather(parts, t)  # FAULT
    return parts
for step in range(12):
    x, y = batch()
    optimizer.zero_grad()
    one, other = model(x), model(x + 0.1)
    ones, others = gathered(one), gathered(other)
    ones[rank] = one
    <others>
    logits = torch.cat(ones) @ torch.cat(others).t()
    loss = cross_entropy(logits, torch.arange(len(logits))) * world
    loss.backward()
    optimizer.step()
"""


@pytest.mark.nightly
def test_callers_that_put_their_own_features_back_are_healthy(jobs, tmp_path):
    clean(jobs, BY_CALLERS.replace("<others>", "others[rank] = other"), tmp_path)


@pytest.mark.nightly
def test_each_caller_has_to_put_its_own_features_back(jobs, tmp_path):
    found(jobs, BY_CALLERS.replace("<others>", "pass"), tmp_path, "GS808")
