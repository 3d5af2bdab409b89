"""Replicas that differ between ranks."""

import pytest

from tests.rules.ranks.running import clean, found, training

OWN_INIT = training(
    """
for p in model.parameters():
    dist.all_reduce(p.grad)
    p.grad /= world
optimizer.step()
""",
    setup="""
torch.manual_seed(rank)  # FAULT
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
    steps=20,
)


LEFT_OUT = training(
    """
for p in model.body.parameters():  # FAULT
    dist.all_reduce(p.grad)
    p.grad /= world
optimizer.step()
""",
    model="Net()",
    steps=20,
)


NOISE = training(
    """
for p in model.parameters():
    p.grad.add_(0.01 * torch.randn_like(p))  # FAULT
optimizer.step()
""",
    setup="""
model = DDP(Net())
torch.manual_seed(10 + rank)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
    steps=20,
)


LOAD_ONE = training(
    setup="""
model = DDP(Net())
if rank == 0:
    torch.manual_seed(5)
    model.module.load_state_dict(Net().state_dict())  # FAULT
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
    steps=20,
)


HAND_HEALTHY = training(
    """
for p in model.parameters():
    dist.all_reduce(p.grad)
    p.grad /= world
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
""",
    model="Net()",
    steps=20,
)


def test_weights_that_begin_apart_point_to_the_seed(jobs, tmp_path):
    assert found(jobs, OWN_INIT, tmp_path, "GS801").ranks


@pytest.mark.nightly
def test_a_gradient_left_out_of_a_reduction_by_hand_is_found(jobs, tmp_path):
    assert found(jobs, LEFT_OUT, tmp_path, "GS801").ranks


@pytest.mark.nightly
def test_noise_after_the_reduction_is_found(jobs, tmp_path):
    assert found(jobs, NOISE, tmp_path, "GS801").ranks


@pytest.mark.nightly
def test_a_checkpoint_loaded_on_one_rank_is_found(jobs, tmp_path):
    assert found(jobs, LOAD_ONE, tmp_path, "GS801").ranks


@pytest.mark.nightly
def test_a_reduction_by_hand_of_all_gradients_is_healthy(jobs, tmp_path):
    clean(jobs, HAND_HEALTHY, tmp_path)


ONE_STEPS = training("""
if rank == 0:
    optimizer.step()  # FAULT
""")


@pytest.mark.nightly
def test_a_rank_that_never_steps_is_found(jobs, tmp_path):
    assert found(jobs, ONE_STEPS, tmp_path, "GS801").ranks


SOME_LEFT_OUT = training(
    """
if rank == 0 or step % 4 != 3:
    optimizer.step()  # FAULT
""",
    steps=24,
)


@pytest.mark.nightly
def test_steps_that_a_rank_leaves_out_are_one_finding(jobs, tmp_path):
    finding = found(jobs, SOME_LEFT_OUT, tmp_path, "GS801")
    assert dict(finding.evidence) == {"fewest_steps": 18, "most_steps": 24}


WEIGHT_NOISE = training("""
optimizer.step()
with torch.no_grad():
    for p in model.parameters():
        p.add_(0.001 * torch.randn(p.shape, generator=draws))  # FAULT
""")


@pytest.mark.nightly
def test_noise_on_the_weights_is_found(jobs, tmp_path):
    assert found(jobs, WEIGHT_NOISE, tmp_path, "GS801").ranks


CONVERTED = """
net = Net()
net.double().float()
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    if step == 5:
        {convert}
    x, y = batch()
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""


@pytest.mark.nightly
def test_a_model_that_is_converted_after_it_was_wrapped_is_found(jobs, tmp_path):
    body = CONVERTED.format(convert="model.module.double().float()  # FAULT")
    assert "converted after DDP" in found(jobs, body, tmp_path, "GS801").message


@pytest.mark.nightly
def test_a_conversion_to_the_same_type_keeps_the_hooks(jobs, tmp_path):
    clean(jobs, CONVERTED.format(convert='model.to("cpu", torch.float32)'), tmp_path)


UNFROZEN = training(
    """
for p in model.parameters():
    gradient = torch.zeros_like(p) if p.grad is None else p.grad
    dist.all_reduce(gradient)
    if p.grad is not None:
        p.grad.copy_(gradient / world)
optimizer.step()
if step == 8 + 3 * rank:
    model.body.requires_grad_(True)  # FAULT
""",
    setup="""
model = Net()
model.body.requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
    steps=20,
)


@pytest.mark.nightly
def test_layers_that_one_rank_unfreezes_earlier_are_found(jobs, tmp_path):
    assert "has no gradient of model.body" in found(jobs, UNFROZEN, tmp_path, "GS801").message


@pytest.mark.nightly
def test_layers_that_all_ranks_unfreeze_are_healthy(jobs, tmp_path):
    clean(jobs, UNFROZEN.replace("8 + 3 * rank", "8"), tmp_path)


BRANCH = training(
    """
optimizer.step()
if step == 9 and rank == 0:
    with torch.no_grad():
        torch._foreach_mul_(list(model.module.head.parameters()), 0.9)  # FAULT
""",
    steps=20,
)


@pytest.mark.nightly
def test_weights_that_one_rank_changes_point_to_its_branch(jobs, tmp_path):
    finding = found(jobs, BRANCH, tmp_path, "GS801")
    assert "only some ranks change" in finding.message
    assert "_foreach_mul_" in finding.location.source
    (tmp_path / "healthy").mkdir()
    clean(jobs, BRANCH.replace(" and rank == 0", ""), tmp_path / "healthy")


FROZEN = """
torch.manual_seed(rank)
target = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 4)).requires_grad_(False)  # FAULT
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    x, _ = batch()
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), target(x))
    loss.backward()
    optimizer.step()
"""


@pytest.mark.nightly
def test_a_frozen_target_of_each_rank_is_found(jobs, tmp_path):
    finding = found(jobs, FROZEN, tmp_path, "GS801")
    assert finding.severity == "warning"
    shared = FROZEN.replace("manual_seed(rank)", "manual_seed(5)")
    (tmp_path / "healthy").mkdir()
    clean(jobs, shared, tmp_path / "healthy")


DRAWN = training(
    setup="""
class Features(Net):
    def __init__(self):
        super().__init__()
        <drawn>

    def forward(self, x):
        return self.head(self.body(x @ self.features))

torch.manual_seed(<seed>)
model = DDP(Features())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
    steps=20,
)


def drawn(line, seed="rank"):
    return DRAWN.replace("<drawn>", line).replace("<seed>", seed)


def test_random_features_that_each_rank_draws_are_found(jobs, tmp_path):
    body = drawn("self.features = torch.randn(16, 16) / 4  # FAULT")
    assert found(jobs, body, tmp_path, "GS801").severity == "warning"


BY_HAND = training(
    """
for p in model.parameters():
    dist.all_reduce(p.grad)
    p.grad /= world
optimizer.step()
""",
    setup="""
class Features(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("features", torch.randn(16, 16) / 4)  # FAULT

    def forward(self, x):
        return self.head(self.body(x @ self.features))

torch.manual_seed(rank)
model = Features()
for one in (<sent>):
    dist.broadcast(one.data, src=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
    steps=20,
)


@pytest.mark.nightly
def test_a_random_buffer_that_a_script_does_not_broadcast_is_found(jobs, tmp_path):
    body = BY_HAND.replace("<sent>", "model.parameters()")
    assert found(jobs, body, tmp_path, "GS801").severity == "warning"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "body",
    [
        drawn("self.features = torch.randn(16, 16) / 4", seed="5"),
        drawn('self.register_buffer("features", torch.randn(16, 16) / 4)'),
        # A table that depends on the rank, and is not drawn.
        drawn("self.features = torch.eye(16) * (1 + rank)"),
        BY_HAND.replace("<sent>", "*model.parameters(), *model.buffers()"),
        # Noise that each pass draws anew.
        drawn("self.features = torch.randn(16, 16) / 4").replace(
            "return self.head(self.body(x @ self.features))",
            "self.features = torch.rand(16, 16)\n        return self.head(self.body(x))",
        ),
    ],
    ids=["seeded", "buffer", "table", "broadcast", "anew"],
)
def test_constants_that_ranks_share_or_that_change_are_healthy(jobs, tmp_path, body):
    clean(jobs, body, tmp_path)
