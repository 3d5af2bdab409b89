"""Averages over the ranks that are taken twice, or never."""

from tests.rules.ranks.running import clean, found

SUMMED = """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    x, y = batch()
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)  # FAULT
    optimizer.step()
"""


LOSS_LOGGED = """
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    x, y = batch()
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss.detach())
    mean = loss / world
"""


def test_summed_gradients_that_are_never_divided_are_found(jobs, tmp_path):
    assert found(jobs, SUMMED, tmp_path, "GS804").ranks


def test_a_loss_that_is_reduced_for_logging_is_healthy(jobs, tmp_path):
    clean(jobs, LOSS_LOGGED, tmp_path)
