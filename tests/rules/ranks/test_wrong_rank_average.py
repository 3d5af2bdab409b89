"""Averages over the ranks that are taken twice, or never."""

import pytest

from tests.nightly import some_on_push
from tests.rules.ranks.running import clean, found, training

SUMMED = training(
    """
for p in model.parameters():
    dist.all_reduce(p.grad)  # FAULT
optimizer.step()
""",
    model="Net()",
    steps=20,
)


LOSS_LOGGED = training(
    """
optimizer.step()
dist.all_reduce(loss.detach())
mean = loss / world
""",
    steps=20,
)


def test_summed_gradients_that_are_never_divided_are_found(jobs, tmp_path):
    assert found(jobs, SUMMED, tmp_path, "GS804").ranks


@pytest.mark.nightly
def test_a_loss_that_is_reduced_for_logging_is_healthy(jobs, tmp_path):
    clean(jobs, LOSS_LOGGED, tmp_path)


RETURNED = training(
    setup="""
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
n = dist.get_world_size()
def objective(z, y):
    return cross_entropy(z, y) / n  # FAULT
""",
    loss="objective(model(x), y)",
)


@pytest.mark.nightly
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


@pytest.mark.nightly
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


AFTER = training(
    """
GRADIENTS
optimizer.step()
""",
    setup="""
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scale = 1.0 / dist.get_world_size()
""",
    loss="cross_entropy(model(x), y)LOSS",
)


@pytest.mark.nightly
def test_gradients_divided_after_ddp_has_averaged_them_are_found(jobs, tmp_path):
    divided = "for p in model.parameters(): p.grad.div_(world)  # FAULT"
    body = AFTER.replace("LOSS", "").replace("GRADIENTS", divided)
    assert found(jobs, body, tmp_path, "GS804").ranks


@pytest.mark.nightly
def test_a_loss_times_one_over_the_number_of_ranks_is_found(jobs, tmp_path):
    body = AFTER.replace("LOSS", " * scale  # FAULT").replace("GRADIENTS", "")
    assert found(jobs, body, tmp_path, "GS804").ranks


@pytest.mark.nightly
def test_gradients_clipped_after_ddp_has_averaged_them_are_healthy(jobs, tmp_path):
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)"
    clean(jobs, AFTER.replace("LOSS", "").replace("GRADIENTS", clip), tmp_path)


# Rows are drawn, so that the number of tokens differs from step to step.
TOKENS = """
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    x, y = batch(8 + step)
    count = torch.tensor(float(len(y)))
    dist.all_reduce(count)  # FAULT
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y, reduction="sum") {factor} / count
    loss.backward()
    {later}
    optimizer.step()
"""
GRADIENTS = """
from torch.distributed.fsdp import fully_shard
model = Net()
fully_shard(model)
{divisor}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    tokens = torch.zeros(())
    for _ in range(2):
        x, y = batch(6 + step)
        tokens += len(y)
        loss = cross_entropy(model(x), y, reduction="sum")
        loss.backward()
    dist.all_reduce(tokens)  # FAULT
    for p in model.parameters():
        p.grad.mul_({factor} / tokens)
    optimizer.step()
    optimizer.zero_grad()
"""
# gloo cannot multiply while it sums.
OWN_DIVISOR = """
model.set_gradient_divide_factor(1.0)
model.set_force_sum_reduction_for_comms(True)
"""


@pytest.mark.nightly
def test_a_loss_divided_by_the_tokens_of_all_ranks_is_found(jobs, tmp_path):
    finding = found(jobs, TOKENS.format(factor="", later="pass"), tmp_path, "GS804")
    assert "they are 2 times too small" in finding.message
    assert finding.count == 8


@pytest.mark.nightly
def test_gradients_divided_by_the_tokens_of_all_ranks_are_found(jobs, tmp_path):
    body = GRADIENTS.format(divisor="", factor="1.0")
    assert "gradients are divided" in found(jobs, body, tmp_path, "GS804").message


@pytest.mark.nightly
@pytest.mark.parametrize(
    "body",
    some_on_push(
        [
            TOKENS.format(factor="* world", later="pass"),
            TOKENS.format(factor="", later="[p.grad.mul_(world) for p in model.parameters()]"),
            GRADIENTS.format(divisor="", factor="world"),
            GRADIENTS.format(divisor=OWN_DIVISOR, factor="1.0"),
        ],
        3,
    ),
)
def test_tokens_of_all_ranks_with_a_factor_for_the_mean_are_healthy(jobs, tmp_path, body):
    clean(jobs, body, tmp_path)


MULTIPLIED = training(
    optimizer="SGD(model.parameters(), lr=0.05)", loss="cross_entropy(model(x), y) * world  # FAULT"
)


@pytest.mark.nightly
def test_a_mean_that_is_multiplied_by_the_ranks_is_found(jobs, tmp_path):
    finding = found(jobs, MULTIPLIED, tmp_path, "GS804")
    assert "multiplied by the number of ranks, 2" in finding.message


@pytest.mark.nightly
@pytest.mark.parametrize(
    "healthy",
    [
        MULTIPLIED.replace("* world", "* 2.0"),
        MULTIPLIED.replace(
            "    loss.backward()",
            "    parts = [torch.empty(1), torch.empty(1)]\n"
            "    dist.all_gather(parts, loss.detach().reshape(1))\n    loss.backward()",
        ),
        MULTIPLIED.replace(
            "    optimizer.step()",
            "    for p in model.parameters():\n        p.grad /= world\n    optimizer.step()",
        ),
    ],
    ids=["a-weight", "gathered", "divided-later"],
)
def test_other_factors_on_a_loss_are_not_found(jobs, tmp_path, healthy):
    clean(jobs, healthy, tmp_path)


BEFORE = training(
    """
for p in model.parameters():
    p.grad /= world
    dist.all_reduce(p.grad)  # FAULT
optimizer.step()
""",
    model="Net()",
    optimizer="SGD(model.parameters(), lr=0.05)",
)

FLAT_BEFORE = BEFORE.replace(
    """    for p in model.parameters():
        p.grad /= world
        dist.all_reduce(p.grad)  # FAULT
""",
    """    flat = torch.cat([p.grad.flatten() for p in model.parameters()]) / world
    dist.all_reduce(flat)
    nn.utils.vector_to_parameters(flat, [p.grad for p in model.parameters()])
""",
)


@pytest.mark.nightly
@pytest.mark.parametrize("healthy", some_on_push([BEFORE, FLAT_BEFORE], 2))
def test_gradients_that_are_divided_before_their_sum_are_healthy(jobs, tmp_path, healthy):
    clean(jobs, healthy, tmp_path)


@pytest.mark.nightly
def test_gradients_that_are_summed_are_found_although_something_else_is_divided(jobs, tmp_path):
    summed = BEFORE.replace("        p.grad /= world\n", "        mean = p.grad.norm() / world\n")
    found(jobs, summed, tmp_path, "GS804")


ACCUMULATED = """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    optimizer.zero_grad()
    for micro in range(2):
        x, y = batch()
        loss = cross_entropy(model(x), y) / 2
        loss.backward()
        for p in model.parameters():
            <before>
            dist.all_reduce(p.grad)  # FAULT
            <after>
    <last>
    optimizer.step()
"""


def accumulated(before="pass", after="pass", last="pass"):
    text = ACCUMULATED.replace("<before>", before).replace("<after>", after)
    return text.replace("<last>", last)


@pytest.mark.nightly
def test_sums_that_are_summed_again_are_found(jobs, tmp_path):
    body = accumulated(last="[p.grad.div_(world) for p in model.parameters()]")
    assert "after each of several" in found(jobs, body, tmp_path, "GS804").message


@pytest.mark.nightly
@pytest.mark.parametrize(
    "division",
    [
        {"before": "p.grad.div_(world)"},
        {"after": "p.grad.div_(world)"},
        {"after": "p.grad.data /= world"},
    ],
)
def test_means_that_are_reduced_again_are_healthy(jobs, tmp_path, division):
    clean(jobs, accumulated(**division), tmp_path)


DIVISOR = """
from torch.distributed.fsdp import fully_shard

model = Net()
fully_shard(model)
model.set_gradient_divide_factor(1.0)  # FAULT
model.set_force_sum_reduction_for_comms(True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    x, y = batch()
    optimizer.zero_grad()
    <loss>
    loss.backward()
    optimizer.step()
"""


@pytest.mark.nightly
def test_a_mean_of_a_rank_without_a_division_by_fsdp_is_found(jobs, tmp_path):
    body = DIVISOR.replace("<loss>", "loss = cross_entropy(model(x), y)")
    assert "switched off" in found(jobs, body, tmp_path, "GS804").message


@pytest.mark.nightly
@pytest.mark.parametrize(
    "loss",
    [
        "loss = cross_entropy(model(x), y) / world",
        "loss = cross_entropy(model(x), y, reduction='sum') / (len(y) * world)",
    ],
)
def test_a_loss_over_the_rows_of_all_ranks_without_a_division_by_fsdp_is_healthy(
    jobs, tmp_path, loss
):
    clean(jobs, DIVISOR.replace("<loss>", loss), tmp_path)


EXPERTS = """
from torch.distributed.nn.functional import all_to_all_single

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.expert = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))

    def forward(self, x):
        here = all_to_all_single(torch.empty_like(x), x.contiguous())
        back = self.expert(here)
        return x + all_to_all_single(torch.empty_like(back), back.contiguous())

stem, layer, head = nn.Linear(16, 16), Layer(), nn.Linear(16, 4)
own = list(layer.expert.parameters())
for p in own:
    nn.init.normal_(p, std=0.2, generator=torch.Generator().manual_seed(3 + rank))
shared = [*stem.parameters(), *head.parameters()]
<before>
optimizer = torch.optim.SGD([*shared, *own], lr=0.05)
for step in range(16):
    x, y = batch()
    loss = cross_entropy(head(layer(stem(x))), y)
    optimizer.zero_grad()
    loss.backward()
    for p in shared:
        dist.all_reduce(p.grad)  # FAULT
        p.grad /= world
    <after>
    optimizer.step()
"""


def experts(before="", after="pass"):
    return EXPERTS.replace("<before>", before).replace("<after>", after)


@pytest.mark.nightly
def test_experts_with_sums_beside_means_are_found(jobs, tmp_path):
    assert found(jobs, experts(), tmp_path, "GS804").severity == "warning"


HOOK = """
def divide(p):
    p.grad.div_(world)

for p in own:
    p.register_post_accumulate_grad_hook(divide)
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    "body",
    [
        experts(after="for p in own: p.grad /= world"),
        experts(before=HOOK),
        # Sums for all layers: the loss is over the rows of all ranks.
        experts()
        .replace("p.grad /= world", "pass")
        .replace("cross_entropy(", "0.5 * cross_entropy("),
        # Nothing is exchanged: the layer of a rank sees its own rows.
        experts()
        .replace("all_to_all_single(torch.empty_like(x), x.contiguous())", "x")
        .replace("all_to_all_single(torch.empty_like(back), back.contiguous())", "back"),
    ],
    ids=["divided", "hook", "sums", "own rows"],
)
def test_experts_with_means_or_rows_of_their_own_are_healthy(jobs, tmp_path, body):
    clean(jobs, body, tmp_path)


OWN_MEAN = """
model = DDP(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(16):
    parts = [batch() for _ in range(2)]
    count = torch.tensor(float(sum(len(y) for _, y in parts)))
    <count>
    optimizer.zero_grad()
    for at, (x, y) in enumerate(parts):
        with model.no_sync() if at == 0 else contextlib.nullcontext():
            loss = cross_entropy(model(x), y, reduction="sum") * world / count  # FAULT
            loss.backward()
    optimizer.step()
"""


@pytest.mark.nightly
def test_a_sum_over_the_own_rows_that_is_multiplied_by_the_ranks_is_found(jobs, tmp_path):
    assert found(jobs, OWN_MEAN.replace("<count>", "pass"), tmp_path, "GS804").ranks


@pytest.mark.nightly
@pytest.mark.parametrize("count", ["dist.all_reduce(count)", "count = count * world"])
def test_a_sum_over_the_rows_of_all_ranks_is_healthy(jobs, tmp_path, count):
    clean(jobs, OWN_MEAN.replace("<count>", count), tmp_path)
