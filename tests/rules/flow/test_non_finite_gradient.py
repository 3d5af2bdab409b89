"""GS103: the operation whose backward made NaN or infinity."""

import dataclasses
import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
from gradscope.rules.engine import judge
from tests.nightly import some_on_push
from tests.rules import watching
from tests.rules.inspecting import only


class Functional(nn.Module):
    """Two layers, and a forward that a test writes."""

    def __init__(self, forward):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 8)
        self.run = forward

    def forward(self, x):
        return self.run(self, self.second(self.first(x)))


class Careless(torch.autograd.Function):
    """A square root whose backward divides by zero."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.abs().sqrt()

    @staticmethod
    def backward(ctx, gradient):
        return gradient / (0 * ctx.saved_tensors[0])


def inspect(forward):
    torch.manual_seed(0)
    return gradscope.inspect(Functional(forward), torch.randn(20, 6))


def same(h):
    """Return what is exactly zero and still depends on a tensor."""
    return (h[:, :1] - h[:, :1]).square().sum(1)


def cosine(h):
    unit = functional.normalize(h, dim=-1)
    return (unit * unit.detach()).sum(-1).clamp(-1, 1)


def where_logarithm(h):
    return torch.where(h > 0, h.clamp_min(0).log(), h)


def where_division(h):
    below = h.clamp_min(0) * 1
    return torch.where(h > 0, h / below, h)


BROKEN = {
    "root of zero": (lambda m, h: h.sum() + same(h).sqrt().sum(), "sqrt", "small number"),
    "power of zero": (lambda m, h: h.sum() + (same(h) ** 0.5).sum(), "pow", "small number"),
    "arc cosine of one": (lambda m, h: torch.acos(cosine(h)).sum(), "acos", "1 - 1e-6"),
    "division behind a where": (lambda m, h: where_division(h).sum(), "division", "denominator"),
    "equal eigenvalues": (
        lambda m, h: torch.linalg.eigh(torch.eye(8) + 0 * h[:8])[1].sum(),
        "eigh",
        "distinct",
    ),
    "a function of the user's": (lambda m, h: Careless.apply(h).sum(), "Careless", "backward of"),
}


@pytest.mark.parametrize(
    ("forward", "function", "remedy"), some_on_push(BROKEN.values(), 3), ids=BROKEN
)
def test_the_operation_is_named_whose_backward_breaks_the_gradient(forward, function, remedy):
    report = inspect(forward)
    assert math.isfinite(report.recording.steps[0].loss)
    found = only(report.findings, "GS103")
    assert found.severity == "error"
    assert f"the backward of {function} " in found.message
    assert remedy in found.remedy
    assert set(found.parameters) == {"first.weight", "first.bias", "second.weight", "second.bias"}
    broken = [
        report.recording.parameters[stat.parameter].name
        for stat in report.recording.parameter_stats
        if stat.step == 0 and stat.gradient.nonfinite
    ]
    assert set(found.parameters) == set(broken)


class Pooling(nn.Module):
    """Rows of zeros are exactly zero, and so they stay in a layer without a bias."""

    def __init__(self):
        super().__init__()
        self.project, self.head = nn.Linear(6, 12, bias=False), nn.Linear(12, 3)

    def forward(self, x):
        h = self.project(x)
        h = h.sign() * h.abs().sqrt()
        return self.head(functional.normalize(h, dim=-1).mean(1)).square().mean()


def test_a_singular_point_explains_that_gradients_grow_beside_it():
    torch.manual_seed(0)
    rows = torch.randn(8, 5, 6)
    rows[:, 3:] = 0
    (found,) = gradscope.inspect(Pooling(), rows).findings
    assert found.rule == "GS103"
    assert found.location.source == "h = h.sign() * h.abs().sqrt()"
    assert {one.rule for one in found.consequences} == {"GS101"}


def test_gradients_that_overflow_because_they_grow_are_a_consequence_of_it():
    torch.manual_seed(0)
    layers = [nn.Linear(16, 16, bias=False) for _ in range(8)]
    for layer in layers:
        nn.init.normal_(layer.weight, std=5e4)
    deep = nn.Sequential(*layers)
    (found,) = gradscope.inspect(deep, torch.randn(20, 16), lambda y, _: y.sum() * 1e-3).findings
    assert found.rule == "GS101"
    assert {one.rule for one in found.consequences} & {"GS103", "GS104"}


def test_nan_that_a_where_leaves_out_of_the_loss_is_told_with_its_remedy():
    def unit(model, h):
        length = torch.relu(h).square().sum(-1, keepdim=True).mul(torch.arange(20)[:, None] > 3)
        return torch.where(length > 0, 2 * length / length, 0).sum() + h.sum()

    (found,) = inspect(unit).findings
    assert found.rule == "GS103"
    assert "division makes NaN: the denominator is 0 at 4 elements; the loss is" in found.message
    assert "make the denominator safe before the division" in found.remedy


def test_infinity_that_a_where_leaves_out_of_the_loss_is_told_by_its_operation():
    def soft(model, h):
        large = 100 * h + torch.arange(8) * 10
        return torch.where(large > 80, h, large.exp().log1p()).sum()

    (found,) = inspect(soft).findings
    assert found.rule == "GS103"
    assert "the backward of exp " in found.message
    assert "its result is not finite at" in found.message


def test_infinity_that_a_later_operation_takes_in_is_told_where_it_was_made():
    def likelihood(model, h):
        amount = torch.relu(h) * (torch.arange(8) > 3)
        z = amount.log() - h  # made
        return torch.where(amount > 0, z.pow(2), 0).sum()

    (found,) = inspect(likelihood).findings
    assert found.rule == "GS103"
    assert found.message.startswith("log makes infinity: its argument is 0 at ")
    assert "# made" in found.location.source
    assert "make the argument safe before log" in found.remedy


def test_infinity_that_no_gradient_meets_is_no_finding():
    def likelihood(model, h):
        amount = torch.relu(h) * (torch.arange(8) > 3)
        z = torch.where(amount > 0, amount, 1).log() - h
        return torch.where(amount > 0, z.pow(2), 0).sum() + amount.detach().log().max()

    assert not [one for one in inspect(likelihood).findings if one.rule == "GS103"]


def test_singular_points_of_their_own_lines_are_told_beside_nan_of_the_forward():
    def two(model, h):
        zero = torch.relu(h[:, :1]) * 0
        broken = torch.where(zero > 0, zero / zero, 0)
        return broken.sum() + h.sum() + same(model.second(h)).sqrt().sum()

    found = [one for one in inspect(two).findings if one.rule == "GS103"]
    assert {one.message.split()[0] for one in found} == {"division", "the"}


def test_a_gradient_that_outgrows_half_precision_is_told_from_singular_points():
    found = only(inspect(lambda model, h: 1e6 * h.half().float().sum()).findings, "GS103")
    assert "it overflows float16, whose largest number is 65,504, from elements up to 1e6" in (
        found.message
    )
    assert "loss scale" in found.remedy


HEALTHY = {
    "root with a small number": lambda m, h: (same(h) + 1e-8).sqrt().sum(),
    "norm of zero": lambda m, h: same(h).norm() + h.sum(),
    "clamped arc cosine": lambda m, h: torch.acos(0.99 * cosine(h)).sum(),
    "safe before where": lambda m, h: torch.where(h > 0, torch.where(h > 0, h, 1).log(), h).sum(),
    "masked by a relu": lambda m, h: torch.relu(h).sqrt().sum(),
    "distances to itself": lambda m, h: torch.cdist(h, h).sum(),
    "norms of differences": lambda m, h: (h[:, None] - h[None]).norm(dim=-1).sum(),
    "masked attention": lambda m, h: (
        torch.softmax((h @ h.T).masked_fill(torch.ones(20, 20).triu(1) > 0, -math.inf), -1) @ h
    ).sum(),
    "infinity left out by clamp": lambda m, h: torch.relu(h).log().clamp_min(-5).sum(),
}


@pytest.mark.parametrize("forward", some_on_push(HEALTHY.values(), 3), ids=HEALTHY)
def test_what_leaves_the_gradients_finite_is_no_finding(forward):
    codes = {finding.rule for finding in inspect(forward).findings}
    assert not codes & {"GS103", "GS104"}


def test_the_line_and_the_last_that_was_finite_are_told(inspect_file):
    report = inspect_file(
        "import torch\n"
        "from torch import nn\n"
        "class Distance(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.embed = nn.Linear(4, 4)\n"
        "    def forward(self, x):\n"
        "        a, b = self.embed(x), self.embed(x.clone())\n"
        "        squared = (a - b).square().sum(1)\n"
        "        root = torch.sqrt(squared)\n"
        "        return root * 2\n"
        "model = Distance()\n"
        "batch = torch.randn(6, 4)\n"
        "def loss_fn(output, batch):\n"
        "    return output.sum()\n"
    )
    found = only(report.findings, "GS103")
    assert found.location.line == 10
    assert [position.line for position in found.related] == [11]
    assert dict(found.evidence)["singular_elements"] == 6


def test_every_line_that_breaks_gradients_by_itself_is_a_finding():
    def forward(model, h):
        root = same(h).sqrt().sum()
        return root + h.sum() + torch.acos(cosine(h)).sum()

    found = [one for one in inspect(forward).findings if one.rule == "GS103"]
    assert {one.location.line for one in found} == {
        forward.__code__.co_firstlineno + n for n in (1, 2)
    }


@pytest.mark.parametrize("broken", [0, 1, 8])
def test_a_single_element_is_enough(broken):
    recording = inspect(lambda model, h: h.square().sum()).recording
    square = next(n.index for n in recording.nodes if n.operation == "PowBackward0")
    given = [e.target for e in recording.edges if e.source == square]
    norm = math.nan if broken else 1.0

    def spoil(stat):
        gradient = dataclasses.replace(stat.gradient, nonfinite=broken, norm=norm)
        return dataclasses.replace(stat, gradient=gradient)

    changed = dataclasses.replace(
        recording,
        tensor_stats=tuple(
            spoil(stat) if stat.step == 0 and stat.node not in (square, 0) else stat
            for stat in recording.tensor_stats
        ),
        parameter_stats=tuple(spoil(stat) for stat in recording.parameter_stats),
    )
    assert given
    found = [one for one in judge(changed).findings if one.rule == "GS103"]
    assert [dict(one.evidence)["operation"] for one in found] == ["PowBackward0"] * bool(broken)


def test_without_gradients_the_rule_does_not_run():
    recording = inspect(lambda model, h: h.sum()).recording
    bare = dataclasses.replace(recording, tensor_stats=(), parameter_stats=())
    assert "GS103" in {one.rule for one in judge(bare).skipped}


@pytest.mark.parametrize(("broken", "codes"), [(range(8), {"GS103"}), ((1, 4), set())])
def test_nan_that_every_step_replaces_is_told_instead_of_the_zeros(broken, codes, tmp_path):
    def loop():
        torch.manual_seed(0)
        model = nn.Linear(6, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(8):
            optimizer.zero_grad()
            out = model(torch.randn(20, 6))
            apart = (out[:1] - out).square().sum(1)
            (apart if step in broken else apart + 1).sqrt().mean().backward()
            for weight in model.parameters():
                weight.grad = torch.nan_to_num(weight.grad)
            optimizer.step()

    found = watching.findings_of(loop, tmp_path)
    assert {one.rule for one in found if one.severity == "error"} == codes
