"""Tests the origin of NaN and infinity in a forward."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import gradscope
from gradscope.recording.evidence.failures import NonfiniteRecord
from tests.nightly import some_on_push


class Functional(nn.Module):
    """Two layers, and a forward that a test writes."""

    def __init__(self, forward):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)
        self.register_buffer("scale", torch.ones(3))
        self.run = forward

    def forward(self, x):
        return self.second(self.run(self, x)) * self.scale


def origins(forward=lambda model, x: model.first(x), x=None, change=None, **chosen):
    torch.manual_seed(0)
    model = Functional(forward)
    x = torch.randn(20, 6) if x is None else x
    if change is not None:
        change(model)
    loss = lambda output, batch: output.float().sum()  # noqa: E731
    return gradscope.inspect(model, x, loss, **chosen).recording.evidence_of(NonfiniteRecord)


def relu(model, x):
    return torch.relu(model.first(x))


def half(model, x):
    return (200 * model.first(x).half()).pow(3).float()


def spread_of_one(model, x):
    hidden = model.first(x)
    return hidden[:, :1].std(dim=1, keepdim=True) + hidden


def checkpointed(reentrant):
    def forward(model, x):
        x = x.requires_grad_()
        return checkpoint(lambda x: relu(model, x).log(), x, use_reentrant=reentrant)

    return forward


FORWARDS = {
    "log of zero": (lambda m, x: relu(m, x).log(), "log", "infinity"),
    "log in place": (lambda m, x: relu(m, x).clone().log_(), "log_", "infinity"),
    "log of a negative number": (lambda m, x: m.first(x).log(), "log", "NaN"),
    "division by zero": (lambda m, x: relu(m, x) / (0 * relu(m, x)), "div", "NaN"),
    "overflow of an exponential": (lambda m, x: (99 + 99 * m.first(x)).exp(), "exp", "infinity"),
    "overflow of half precision": (half, "pow", "infinity"),
    "spread of a single number": (spread_of_one, "std", "NaN"),
    "mean of nothing": (lambda m, x: m.first(x)[x[:, 0] > 99].mean() + m.first(x), "mean", "NaN"),
    "square root below zero": (lambda m, x: m.first(x).sqrt(), "sqrt", "NaN"),
    "inside of a checkpoint": (checkpointed(False), "log", "infinity"),
    "inside of a reentrant checkpoint": (checkpointed(True), "log", "infinity"),
    "under no_grad": (lambda m, x: m.first(x) * torch.zeros(8).log().detach(), "log", "infinity"),
    "mapped": (lambda m, x: torch.func.vmap(lambda row: relu(m, row).log())(x), "log", "infinity"),
}


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize(
    ("forward", "operation", "makes"), some_on_push(FORWARDS.values(), 4), ids=FORWARDS
)
def test_the_first_operation_is_found_that_made_it_of_finite_numbers(forward, operation, makes):
    first = origins(forward)[0]
    assert (first.operation, first.makes, first.source) == (operation, makes, "operation")
    assert all(operand.nonfinite == 0 for operand in first.operands)


def test_operands_are_described_as_they_were_before_they_were_written_to():
    first = origins(lambda model, x: relu(model, x).clone().log_())[0]
    (operand,) = first.operands
    assert (operand.minimum, operand.zeros) == (0, first.broken)


def test_a_finite_forward_is_not_searched():
    assert origins() == ()


def test_nan_is_traced_to_the_infinity_of_which_it_was_made():
    made, lost = origins(lambda model, x: relu(model, x) * relu(model, x).log())
    assert (made.operation, made.reaches_loss) == ("log", False)
    assert (lost.operation, lost.makes, lost.because_of) == ("mul", "NaN", made.index)
    assert lost.reaches_loss


def test_a_row_that_is_masked_everywhere_is_distinguished_from_other_masks():
    def forward(model, x):
        hidden = model.first(x)
        scores = (hidden @ hidden.T).masked_fill(torch.eye(20, dtype=torch.bool), -math.inf)
        scores = scores.index_fill(0, torch.tensor([3, 5]), -math.inf)
        return torch.softmax(scores, dim=-1) @ hidden

    mask, softmax = origins(forward)
    assert mask.source == "constant"
    assert (softmax.operation, softmax.makes, softmax.blocked_rows) == ("_softmax", "NaN", 2)
    assert softmax.because_of == mask.index


def set_nan(name):
    def change(model):
        with torch.no_grad():
            model.get_parameter(name)[0] = math.nan

    return change


def set_buffer(model):
    model.scale[1] = math.nan


def test_a_parameter_that_was_broken_before_is_named():
    first = origins(change=set_nan("first.bias"))[0]
    assert (first.source, first.name, first.broken) == ("parameter", "first.bias", 1)
    assert first.reaches_loss


def test_a_buffer_that_was_broken_before_is_named():
    first = origins(change=set_buffer)[0]
    assert (first.source, first.name, first.makes) == ("buffer", "scale", "NaN")


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_batch_that_was_broken_before_is_named(number):
    x = torch.randn(20, 6)
    x[2, 3] = number
    first, *later = origins(x=x)
    assert (first.source, first.broken) == ("batch", 1)
    (lost,) = [one for one in (first, *later) if one.reaches_loss]
    assert lost is first or lost.because_of == first.index


def test_what_was_broken_before_is_reported_without_a_second_forward():
    x = torch.full((20, 6), math.nan)
    (first,) = origins(x=x, probe_steps=0)
    assert (first.source, first.broken, first.reaches_loss) == ("batch", 120, True)


def test_memory_that_was_never_written_is_no_origin_where_it_is_overwritten():
    def forward(model, x):
        buffer = torch.empty(20, 8).fill_(math.nan)
        buffer[:] = model.first(x)
        return torch.relu(buffer).log()

    filled, made, lost = origins(forward)
    assert (filled.source, made.operation, lost.because_of) == ("constant", "log", made.index)


def test_every_target_left_out():
    loss = functional.cross_entropy
    report = gradscope.inspect(nn.Linear(6, 3), (torch.randn(9, 6), torch.full((9,), -100)), loss)
    (found,) = report.recording.evidence_of(NonfiniteRecord)
    assert (found.operation, found.makes) == ("nll_loss_forward", "NaN")
