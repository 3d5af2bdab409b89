"""Custom functions that are right, that choose another gradient, or that cannot be checked."""

import pytest
import torch
from torch import nn
from torch.autograd import Function

import gradscope
from tests.nightly import some_on_push
from tests.rules.autograd.custom_functions import (
    Dropout,
    Exp,
    Linear,
    MeanAndNorm,
    ReLU,
    Scale,
    Swish,
    function,
    inspected,
    linear,
    outcome,
    record_of,
    save,
)
from tests.rules.inspecting import only

RIGHT = {
    "swish": Swish.apply,
    "relu": ReLU.apply,
    "relu of zeros": lambda x: ReLU.apply(ReLU.apply(x) - 0),
    "linear without bias": linear,
    "linear with bias": lambda x: Linear.apply(x, torch.eye(6) + 0.1, torch.ones(6)),
    "setup_context": lambda x: Scale.apply(x, 3.0, "name"),
    "in place": lambda x: Exp.apply(x * 0.1),
    "several outputs": lambda x: sum(MeanAndNorm.apply(x)[::2]) + x,
    "not contiguous": lambda x: Swish.apply(x.T).T,
    "random": Dropout.apply,
}


@pytest.mark.parametrize("apply", some_on_push(RIGHT.values(), 4), ids=RIGHT)
def test_right_functions_deviate_by_rounding_alone(apply):
    record = record_of(apply)
    assert record.outcome == "right"
    assert all(check.elements > 3 and check.deviation < 1e-6 for check in record.inputs)


CHOSEN = {
    "straight-through round": function(lambda ctx, x: x.round(), lambda ctx, g: g),
    "straight-through sign": function(lambda ctx, x: x.sign(), lambda ctx, g: g / 2),
    "gradient reversal": function(lambda ctx, x: x.view_as(x), lambda ctx, g: -0.3 * g),
    "gradient scaling": function(lambda ctx, x: x * 1.0, lambda ctx, g: 0.1 * g),
    "gradient clipping": function(lambda ctx, x: x.clone(), lambda ctx, g: g.clamp(-0.1, 0.1)),
    "marker of another shape": function(
        lambda ctx, x: x.reshape(-1), lambda ctx, g: 2 * g.view(-1, 6)
    ),
    "spike": function(
        lambda ctx, x: (save(ctx, x), (x > 0).to(x))[1],
        lambda ctx, g: g / (1 + (3 * ctx.saved_tensors[0]).abs()) ** 2,
    ),
}


@pytest.mark.parametrize("custom", some_on_push(CHOSEN.values(), 3), ids=CHOSEN)
def test_chosen_gradients_are_left_alone(custom):
    record = record_of(lambda x: custom.apply(x).reshape(x.shape))
    assert (record.outcome, record.inputs) == ("chosen", ())


def test_a_surrogate_that_takes_the_sign_of_the_gradient_is_left_alone():
    """Twice the gradient gives the same, but the opposite one does not."""
    spike = function(
        lambda ctx, x: (save(ctx, x), (x > 0).to(x))[1],
        lambda ctx, g: g.sign() / (1 + ctx.saved_tensors[0].abs()) ** 2,
    )
    assert record_of(spike.apply).outcome == "unchecked"


@pytest.mark.parametrize("dtype", [None, torch.float32], ids=["any dtype", "float32 alone"])
def test_a_surrogate_that_ignores_the_gradient_is_wrong(dtype):
    """The derivative of the surrogate alone is the same for every loss."""
    spike = function(
        lambda ctx, x: (save(ctx, x), (x > 0).to(dtype or x.dtype))[1],
        lambda ctx, g: 1 / (1 + (3 * ctx.saved_tensors[0]).abs()) ** 2,
    )
    report = inspected(spike.apply)
    assert outcome(report).outcome == "ignoring"
    found = only(report.findings, "GS505")
    assert found.severity == "error"
    assert "the same whatever gradient it gets" in found.message


def test_a_function_that_is_first_called_on_a_constant_is_checked_on_what_learns():
    doubled = function(lambda ctx, x: x * x, lambda ctx, g: g)
    report = inspected(lambda x: doubled.apply(x + doubled.apply(torch.zeros_like(x))))
    assert outcome(report).outcome == "wrong"


def test_a_loss_that_is_added_by_its_gradient_is_meant():
    """The balancing loss of experts: the output is the input, and the loss gets a gradient of 1."""
    added = function(lambda ctx, x, loss: x.view_as(x), lambda ctx, g: (g, torch.ones(())))
    assert record_of(lambda x: added.apply(x, x.square().mean())).outcome == "chosen"


class LearnedStep(Function):
    """A quantizer with a learned step (LSQ): no gradient of it is a derivative."""

    @staticmethod
    def forward(ctx, x, step):
        save(ctx, x, step)
        return (x / step).round() * step

    @staticmethod
    def backward(ctx, grad):
        x, step = ctx.saved_tensors
        return grad, (grad * ((x / step).round() - x / step)).sum()


@pytest.mark.nightly
def test_a_learned_quantizer_is_chosen_as_a_whole():
    step = nn.Parameter(torch.tensor(0.05))
    assert record_of(lambda x: LearnedStep.apply(x, step)).outcome == "chosen"


def test_a_clamp_that_lets_gradients_pass_is_right():
    clamp = function(lambda ctx, x: x.clamp(-0.3, 0.3), lambda ctx, g: g)
    assert record_of(clamp.apply).outcome == "right"


def test_gradients_left_out_are_no_mistake():
    first = function(lambda ctx, x, y: x * y, lambda ctx, g: (g * 0.5, None))
    record = record_of(lambda x: first.apply(x, torch.full_like(x, 0.5)))
    assert record.outcome == "right"


def _only_once(ctx):
    CALLS.append(ctx)
    if len(CALLS) > 2:
        raise RuntimeError("once in the step, once when it is noted")
    return 2


CALLS: list[object] = []


UNCHECKED = {
    "not linear": (
        function(lambda ctx, x: x * 2, lambda ctx, g: (g * 2).clamp(-0.1, 0.1)),
        "not linear",
    ),
    "raises": (
        function(lambda ctx, x: x * _only_once(ctx), lambda ctx, g: g),
        "RuntimeError",
    ),
}


@pytest.mark.parametrize(("custom", "reason"), UNCHECKED.values(), ids=UNCHECKED)
def test_what_cannot_be_checked_is_said(custom, reason):
    report = inspected(custom.apply)
    assert outcome(report).outcome == "unchecked"
    assert any(
        "finite differences" in note.what and reason in note.reason for note in report.skipped
    )
    assert "GS505" not in {finding.rule for finding in report.findings}


def test_a_loss_may_count_on_being_given_one():
    loss = function(
        lambda ctx, x: (save(ctx, 2 * x), x.square().sum())[1],
        lambda ctx, g: ctx.saved_tensors[0],
    )
    report = gradscope.inspect(nn.Linear(5, 3), torch.randn(7, 5), lambda y: loss.apply(y))
    assert outcome(report).outcome == "unchecked"
    assert not report.findings


def test_half_precision_within_is_left_alone():
    rough = function(lambda ctx, x: x.bfloat16().exp().to(x.dtype), lambda ctx, g: g)
    assert record_of(rough.apply).outcome in ("chosen", "unchecked")


def test_random_from_elsewhere_is_unchecked():
    generator = torch.Generator().manual_seed(0)
    noisy = function(
        lambda ctx, x: x * torch.rand(x.shape, generator=generator).to(x), lambda ctx, g: g
    )
    assert "differs from call to call" in record_of(noisy.apply).reason
