"""Scripts that give weights other memory in every step, and reduce gradients themselves."""

from gradscope.recording.evidence.ranks import RankEvent
from tests.rules.ranks.running import script

BODY = """
model = Net()
parameters = list(model.parameters())
optimizer = torch.optim.SGD(parameters, lr=0.05)
for step in range(20):
    x, y = batch()
    model.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    for p in parameters:
        dist.all_reduce(p.grad)
        p.grad /= world
    optimizer.step()
    for p in parameters:
        p.data = p.data * 0.999
"""


def test_a_gradient_in_the_former_memory_of_a_weight_is_no_weight(jobs, tmp_path):
    recordings = jobs.recordings(script(BODY, tmp_path), tmp_path / "job")
    kinds = {event.kind for one in recordings for event in one.evidence_of(RankEvent)}
    assert "gradient-reduced" in kinds
    assert "weight-reduced" not in kinds
