"""What one rank alone can see is found in a job of one rank, too."""

import pytest

from gradscope.rules.engine import judge_job
from tests.nightly import some_on_push
from tests.rules.ranks.running import marked, script, training

LOOP = training(
    setup="""
net = Net()
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
""",
    steps=8,
)
AROUND = LOOP.replace("model(x), y)", "model.module(x), y)  # FAULT")
UNKNOWN = LOOP.replace(
    "optimizer = ", "model.module.head = nn.Linear(32, 4)  # FAULT\noptimizer = ", 1
)
NO_SYNC = LOOP.replace(
    "    loss = cross_entropy(model(x), y)\n    loss.backward()",
    "    with model.no_sync():\n        loss = cross_entropy(model(x), y)  # FAULT\n"
    "        loss.backward()",
)
DIVIDED = LOOP.replace("model(x), y)", "model(x), y) / world  # FAULT")
GATHERED = LOOP.replace(
    "    loss = cross_entropy(model(x), y)",
    "    out = model(x)\n"
    "    parts = [torch.empty_like(out) for _ in range(world)]\n"
    "    dist.all_gather(parts, out)  # FAULT\n"
    "    loss = cross_entropy(torch.cat(parts), torch.cat([y] * world)) + out.square().mean()",
)
SAME_ORDER = """
inputs = torch.randn(64, 16, generator=draws)
data = TensorDataset(inputs, (inputs @ teacher).argmax(1))
sampler = DistributedSampler(data)  # FAULT
loader = DataLoader(data, batch_size=16, sampler=sampler)
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""
CASES = {
    "around": ("GS802", AROUND),
    "unknown": ("GS802", UNKNOWN),
    "no-sync": ("GS802", NO_SYNC),
    "divided": ("GS804", DIVIDED),
    "gathered": ("GS808", GATHERED),
    "same-order": ("GS809", SAME_ORDER),
}


@pytest.mark.parametrize("name", some_on_push(list(CASES), 3))
def test_a_mistake_is_found_in_a_job_of_one_rank(jobs, tmp_path, name):
    rule, body = CASES[name]
    path = script(body, tmp_path)
    recordings = jobs.record(path, tmp_path / "job", ranks=1)
    findings = [one for one in judge_job(recordings).findings if one.rule == rule]
    assert len(findings) == 1
    (finding,) = findings
    named = {one.line for one in (finding.location, *finding.related) if one is not None}
    assert marked(path) & named


@pytest.mark.nightly
def test_a_healthy_job_of_one_rank_has_no_warning(jobs, tmp_path):
    recordings = jobs.record(script(LOOP, tmp_path), tmp_path / "job", ranks=1)
    assert not [one for one in judge_job(recordings).findings if one.severity != "note"]
