"""Steps with gradients that were not reduced."""

from tests.rules.ranks.running import found

METHOD = """
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(20):
    x, y = batch()
    optimizer.zero_grad()
    loss = model.module.loss(x, y)  # FAULT
    loss.backward()
    optimizer.step()
"""


NOSYNC_LAST = """
model = DDP(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(20):
    optimizer.zero_grad()
    for micro in range(4):
        with model.no_sync() if micro > 0 else contextlib.nullcontext():  # FAULT
            x, y = batch(8)
            loss = cross_entropy(model(x), y) / 4
            loss.backward()
    optimizer.step()
"""


UNFREEZE = """
net = Net()
for p in net.body.parameters():
    p.requires_grad_(False)
model = DDP(net)
for p in net.body.parameters():
    p.requires_grad_(True)  # FAULT
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(20):
    x, y = batch()
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


UNWRAPPED_HEAD = """
model = DDP(Net())
extra = nn.Linear(4, 4)
optimizer = torch.optim.AdamW([*model.parameters(), *extra.parameters()], lr=3e-3)
for step in range(20):
    x, y = batch()
    optimizer.zero_grad()
    loss = cross_entropy(extra(model(x)), y)  # FAULT
    loss.backward()
    optimizer.step()
"""


def test_a_method_of_the_module_goes_around_ddp(jobs, tmp_path):
    assert found(jobs, METHOD, tmp_path, "GS802").ranks


def test_no_sync_around_the_last_pass_is_found(jobs, tmp_path):
    assert found(jobs, NOSYNC_LAST, tmp_path, "GS802").ranks


def test_parameters_unfrozen_after_wrapping_are_found(jobs, tmp_path):
    assert found(jobs, UNFREEZE, tmp_path, "GS802").ranks


def test_a_trained_layer_outside_of_ddp_is_found(jobs, tmp_path):
    assert found(jobs, UNWRAPPED_HEAD, tmp_path, "GS802").ranks
