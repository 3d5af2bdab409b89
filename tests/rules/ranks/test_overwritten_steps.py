"""Steps of a rank that a broadcast from another one overwrites."""

import pytest

from tests.rules.ranks.running import clean, judged

PARTS = """
model = Net()
parameters = list(model.parameters())
optimizer = torch.optim.AdamW(parameters[rank::world], lr=3e-3)
for step in range(20):
    x, y = batch()
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    for p in parameters:
        dist.all_reduce(p.grad)
        p.grad /= world
    optimizer.step()
    for at, p in enumerate(parameters):
        dist.broadcast(p.data, src=<source>)  # FAULT
"""


def test_a_broadcast_from_a_rank_that_has_not_stepped_is_found(jobs, tmp_path):
    findings, lines = judged(jobs, PARTS.replace("<source>", "0"), tmp_path)
    (found,) = [one for one in findings if one.rule == "GS318"]
    assert (found.location.line in lines, found.ranks) == (True, (1,))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "body",
    [
        PARTS.replace("<source>", "at % world"),
        # All ranks make the same step.
        PARTS.replace("[rank::world]", "").replace("<source>", "0"),
    ],
    ids=["owner", "all step"],
)
def test_a_broadcast_of_what_was_stepped_is_healthy(jobs, tmp_path, body):
    clean(jobs, body, tmp_path)
