"""GS104: the operation of the forward that made NaN or infinity, where it matters."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradscope
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


def findings(forward, x=None, **chosen):
    torch.manual_seed(0)
    x = torch.randn(20, 6) if x is None else x
    return gradscope.inspect(Functional(forward), x, **chosen).findings


def entropy(model, h):
    p = torch.relu(h)
    return -(p * p.log()).sum()


def likelihood(model, h):
    return functional.nll_loss(torch.softmax(200 * h, -1).log(), torch.zeros(20).long())


def mixture(model, h):
    weights = (300 * h).exp()
    return (weights / weights.sum(-1, keepdim=True)).sum()


def masked(model, h, kept=5):
    scores = (h @ h.T).masked_fill(torch.arange(20)[:, None] == 4, -math.inf)
    return (torch.softmax(scores, -1) @ model.second(h))[kept:].mean()


LOST = {
    "entropy of zero": (entropy, "log makes infinity: its argument is 0 at", "log_softmax"),
    "log of a certain softmax": (likelihood, "log makes infinity", "log_softmax"),
    "overflow of an exponential": (mixture, "exp makes infinity: it overflows float32", "softmax"),
    "overflow at the lower end": (
        lambda m, h: (h - 1000).cosh().mean(),
        "cosh makes infinity: it overflows float32, whose largest number is 3.4e38, from operands "
        "up to 1,0",
        "clamp",
    ),
    "overflow of half precision": (
        lambda m, h: (300 * h.half()).pow(3).float().mean(),
        "pow makes infinity: it overflows float16, whose largest number is 65,504",
        "bfloat16",
    ),
    "fully masked row": (
        lambda m, h: masked(m, h, kept=0),
        "softmax makes NaN: 1 row is masked",
        "unmasked",
    ),
    "mean of an empty tensor": (
        lambda m, h: h[h > 99].mean() + h.sum(),
        "mean of an empty tensor",
        "count",
    ),
    "loss of nothing": (
        lambda m, h: functional.mse_loss(h[h > 99], h[h > 99].detach()) + h.sum(),
        "mse_loss makes NaN: it is the mean of an empty tensor",
        "count",
    ),
    "cross-entropy of nothing": (
        lambda m, h: functional.cross_entropy(h[:0], torch.zeros(0, dtype=torch.long)) + h.sum(),
        "cross_entropy makes NaN: it is the mean of an empty tensor",
        "empty batches",
    ),
    "root of a negative number": (lambda m, h: h.sqrt().sum(), "sqrt makes NaN", "clamp"),
    "cosine over one": (
        lambda m, h: torch.acos(1.1 * torch.cos(h)).sum(),
        "acos makes NaN: its argument is outside -1 to 1",
        "clamp",
    ),
}


@pytest.mark.parametrize(("forward", "message", "remedy"), some_on_push(LOST.values(), 4), ids=LOST)
def test_the_first_operation_is_named_with_its_cause(forward, message, remedy):
    found = only(findings(forward), "GS104")
    assert found.severity == "error"
    assert message in found.message
    assert remedy in found.remedy
    assert found.location.file == __file__


@pytest.mark.parametrize("forward", [mixture, likelihood])
def test_gradients_that_break_on_it_are_its_consequences(forward):
    found = findings(forward)
    assert "GS103" not in {one.rule for one in found}
    assert "GS103" in {one.rule for one in only(found, "GS104").consequences}


def test_nan_in_rows_that_are_thrown_away_matters_all_the_same():
    found = only(findings(masked), "GS103")
    assert "1 row is masked with -inf at every position; the loss is finite, but" in found.message
    assert found.location.line == masked.__code__.co_firstlineno + 1
    assert [place.line for place in found.related] == [masked.__code__.co_firstlineno + 2]
    assert dict(found.evidence)["reaches_loss"] is False


HEALTHY = {
    "masked attention": lambda m, h: (
        torch.softmax((h @ h.T).masked_fill(torch.ones(20, 20).triu(1) > 0, -math.inf), -1) @ h
    ).sum(),
    "mask by the log of zeros": lambda m, h: (
        torch.softmax(h @ h.T + torch.eye(20).flip(0).add(torch.eye(20)).log(), -1) @ h
    ).sum(),
    "masked out again": lambda m, h: torch.relu(h).log().clamp_min(-9).sum(),
    "infinity in a maximum": lambda m, h: torch.maximum(h, torch.tensor(-math.inf)).sum(),
    "nan replaced where nothing flows": lambda m, h: (
        h.sum() + (h.detach() - 9).log().nan_to_num().sum()
    ),
}


@pytest.mark.parametrize("forward", some_on_push(HEALTHY.values(), 3), ids=HEALTHY)
def test_infinity_on_purpose_is_no_finding(forward):
    assert not {one.rule for one in findings(forward)} & {"GS103", "GS104"}


def test_a_batch_with_nan_is_the_cause():
    x = torch.randn(20, 6)
    x[1, 2] = math.nan
    found = only(findings(lambda model, h: h.square().mean(), x), "GS104")
    assert "the batch holds NaN in 1 element before the forward begins" in found.message


def test_nan_in_targets_that_a_where_leaves_out_matters_all_the_same():
    target = torch.randn(20, 3)
    target[4, 1] = math.nan

    def loss(output, target):
        return torch.where(target.isnan(), 0, (output - target).square()).mean()

    torch.manual_seed(0)
    report = gradscope.inspect(nn.Linear(6, 3), (torch.randn(20, 6), target), loss)
    assert math.isfinite(report.recording.steps[0].loss)
    (found,) = report.findings
    assert found.rule == "GS103"
    assert "the batch holds NaN in 1 element" in found.message
    assert found.location.line == loss.__code__.co_firstlineno + 1


def test_nan_in_targets_that_are_selected_away_is_no_finding():
    target = torch.randn(20, 3)
    target[4, 1] = math.nan

    def loss(output, target):
        kept = ~target.isnan()
        return (output[kept] - target[kept]).square().mean()

    report = gradscope.inspect(nn.Linear(6, 3), (torch.randn(20, 6), target), loss)
    assert not {one.rule for one in report.findings} & {"GS103", "GS104"}


def test_infinity_in_a_batch_is_the_cause():
    x = torch.randn(20, 6)
    x[1, 2] = -math.inf
    found = only(findings(lambda model, h: h.square().mean(), x), "GS104")
    assert "the batch holds infinity" in found.message


def test_a_parameter_that_nobody_initialised_is_named_where_it_is_made(inspect_file):
    report = inspect_file(
        "import torch\n"
        "from torch import nn\n"
        "class Scaled(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.linear = nn.Linear(4, 4)\n"
        "        self.scale = nn.Parameter(torch.full((4,), float('nan')))\n"
        "    def forward(self, x):\n"
        "        return self.linear(x) * self.scale\n"
        "def build_model():\n"
        "    return Scaled()\n"
        "def build_batch():\n"
        "    return torch.randn(6, 4)\n"
        "def loss_fn(output, batch):\n"
        "    return output.sum()\n"
    )
    found = only(report.findings, "GS104")
    assert "parameter scale holds NaN in 4 elements" in found.message
    assert found.location.line == 7
    assert [place.line for place in found.related] == [9]


def test_a_loss_whose_forward_cannot_be_run_again_is_told_without_its_origin():
    found = only(findings(entropy, probe_steps=0), "GS104")
    assert "the loss is NaN, and the operation that made it was not observed" in found.message


def test_a_target_that_is_too_long_for_its_input():
    def loss(output, target):
        scores = output.view(4, 5, 3).log_softmax(-1)
        return functional.ctc_loss(scores, target, torch.full((5,), 4), torch.full((5,), 9))

    batch = (torch.randn(20, 6), torch.ones(5, 9, dtype=torch.long))
    found = only(gradscope.inspect(nn.Linear(6, 3), batch, loss).findings, "GS104")
    assert "ctc_loss makes infinity: a target is longer than its input allows" in found.message


def test_every_target_left_out():
    report = gradscope.inspect(
        nn.Linear(6, 3), (torch.randn(9, 6), torch.full((9,), -100)), "cross-entropy"
    )
    assert "ignore_index excludes every target" in only(report.findings, "GS104").message


@pytest.mark.parametrize(
    "picked",
    [lambda p: p[torch.arange(20), torch.zeros(20, dtype=torch.long)], lambda p: 1 - p],
    ids=["index", "reflected operator"],
)
def test_a_script_that_reads_a_broken_tensor_by_an_operator_of_python(picked, tmp_path):
    def loop():
        torch.manual_seed(0)
        model = nn.Linear(6, 8)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            weights = (300 * model(torch.randn(20, 6))).exp()
            shares = weights / weights.sum(1, keepdim=True)
            loss = -picked(shares).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    (found,) = (one for one in watching.findings_of(loop, tmp_path) if one.rule == "GS104")
    assert found.message.startswith("exp makes infinity")
    assert "exp()" in found.location.source


def cleaned(shift, *, broken):
    """Replace NaN in gradients by 0, in batches of which those of `broken` have a negative root."""
    torch.manual_seed(0)
    model = nn.Linear(5, 1)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(12):
        adam.zero_grad()
        x = torch.rand(8, 5) + (shift if step in broken else 0)
        model(x.sqrt()).square().mean().backward()
        for weight in model.parameters():
            torch.nan_to_num(weight.grad, nan=0.0, out=weight.grad)
        adam.step()


@pytest.mark.parametrize(
    ("shift", "broken", "severities"),
    [
        (-0.9, range(12), {"error"}),
        # What is left out now and then is meant, and so is what never occurs.
        (-0.9, (0, 5), set()),
        (0, range(12), set()),
    ],
)
def test_nan_that_every_step_replaces_is_told(tmp_path, shift, broken, severities):
    found = watching.findings_of(lambda: cleaned(shift, broken=broken), tmp_path)
    assert {one.severity for one in found if one.rule == "GS104"} == severities
