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


RETURNED = """
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
n = dist.get_world_size()
def objective(z, y):
    return cross_entropy(z, y) / n  # FAULT
for step in range(12):
    x, y = batch()
    optimizer.zero_grad()
    loss = objective(model(x), y)
    loss.backward()
    optimizer.step()
"""


def test_a_quotient_that_a_function_returns_is_found(jobs, tmp_path):
    assert found(jobs, RETURNED, tmp_path, "GS804").ranks


INLINE = """
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    x, y = batch()
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    (loss / dist.get_world_size()).backward()  # FAULT
    optimizer.step()
"""


def test_a_quotient_that_is_used_at_once_is_found(jobs, tmp_path):
    assert found(jobs, INLINE, tmp_path, "GS804").ranks


TWO_LOSSES = """
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    x, y = batch()
    optimizer.zero_grad()
    z = model(x)
    loss = (cross_entropy(z, y) + cross_entropy(z.flip(1), 3 - y)) / 2
    loss.backward()
    optimizer.step()
    mean = loss.detach() / world
"""


def test_the_mean_of_two_losses_on_two_ranks_is_healthy(jobs, tmp_path):
    clean(jobs, TWO_LOSSES, tmp_path)


AFTER = """
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scale = 1.0 / dist.get_world_size()
for step in range(12):
    x, y = batch()
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)LOSS
    loss.backward()
    GRADIENTS
    optimizer.step()
"""


def test_gradients_divided_after_ddp_has_averaged_them_are_found(jobs, tmp_path):
    divided = "for p in model.parameters(): p.grad.div_(world)  # FAULT"
    body = AFTER.replace("LOSS", "").replace("GRADIENTS", divided)
    assert found(jobs, body, tmp_path, "GS804").ranks


def test_a_loss_times_one_over_the_number_of_ranks_is_found(jobs, tmp_path):
    body = AFTER.replace("LOSS", " * scale  # FAULT").replace("GRADIENTS", "")
    assert found(jobs, body, tmp_path, "GS804").ranks


def test_gradients_clipped_after_ddp_has_averaged_them_are_healthy(jobs, tmp_path):
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)"
    clean(jobs, AFTER.replace("LOSS", "").replace("GRADIENTS", clip), tmp_path)
