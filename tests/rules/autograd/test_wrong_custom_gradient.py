"""GS505: gradients of custom functions that are wrong."""

import dataclasses

import pytest
import torch
from torch import Tensor
from torch.autograd import Function

from gradscope.capture.source.statements import backward_code
from gradscope.recording.evidence.failures import CustomFunctionRecord
from gradscope.rules.autograd.wrong_custom_gradient import WrongCustomGradient
from gradscope.rules.engine import judge
from tests.nightly import some_on_push
from tests.rules.autograd.custom_functions import (
    Linear,
    Swish,
    function,
    inspected,
    outcome,
    record_of,
    save,
)
from tests.rules.inspecting import only


class Transposed(Linear):
    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad @ weight.T, grad.T @ x, None


def wrong_linear(x: Tensor) -> Tensor:
    weight = torch.linspace(-1, 1, 36).view(6, 6).requires_grad_()
    return Transposed.apply(x, weight)


def exp_of(ctx, x):
    save(ctx, x.exp())
    return x.exp()


WRONG = {
    "sign": (function(exp_of, lambda ctx, g: -g * ctx.saved_tensors[0]).apply, 2, -1),
    "factor": (function(lambda ctx, x: x * 4, lambda ctx, g: g * 2).apply, 0.5, 0.5),
    "forgotten": (function(exp_of, lambda ctx, g: g).apply, None, None),
    "transposed": (wrong_linear, None, None),
    "constant": (
        function(exp_of, lambda ctx, g: ctx.saved_tensors[0]).apply,
        None,
        None,
    ),
    "inverted mask": (
        function(
            lambda ctx, x: (save(ctx, x), x.clamp(min=0))[1],
            lambda ctx, g: g * (ctx.saved_tensors[0] < 0),
        ).apply,
        1,
        0,
    ),
}


@pytest.mark.parametrize(
    ("apply", "deviation", "factor"), some_on_push(WRONG.values(), 3), ids=WRONG
)
def test_mistakes_are_found(apply, deviation, factor):
    report = inspected(apply)
    finding = only(report.findings, "GS505")
    assert finding.severity == "error"
    evidence = dict(finding.evidence)
    assert evidence["input"] in {"x", "weight"}
    assert evidence["relative_deviation"] > 0.1
    if deviation is not None:
        assert evidence["relative_deviation"] == pytest.approx(deviation, rel=1e-6)
        assert evidence["factor"] == pytest.approx(factor, abs=1e-6)
    assert set(finding.parameters) == {"first.weight", "first.bias"}


def test_only_the_wrong_input_is_named():
    report = inspected(wrong_linear)
    record = outcome(report)
    deviations = {check.name: check.deviation for check in record.inputs}
    assert deviations["weight"] < 1e-6 < 0.1 < deviations["x"]
    finding = only(report.findings, "GS505")
    assert "`x`" in finding.message
    assert "`weight`" not in finding.message


def test_it_points_to_the_return_and_to_where_it_is_applied(inspect_file):
    report = inspect_file(
        """
import torch
from torch import nn

class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        def inner():
            return 0
        return 2 * grad * x ** 2

cube = Cube.apply

class Net(nn.Linear):
    def forward(self, x):
        return cube(super().forward(x))

model = Net(3, 2)
batch = torch.ones(4, 3)
"""
    )
    finding = only(report.findings, "GS505")
    assert finding.location.source == "return 2 * grad * x ** 2"
    assert [position.source for position in finding.related] == ["return cube(super().forward(x))"]
    assert "0.667 times" in finding.message


AFFINE = """
import torch
from torch import nn


class Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            grad_x = grad @ weight
        if ctx.needs_input_grad[{index}]:
            grad_weight = grad.t() @ x
        return grad_x, grad_weight


class Layer(nn.Linear):
    def forward(self, x):
        return Affine.apply(x, self.weight) + self.bias


def build_model():
    return nn.Sequential(Layer(5, 6), nn.Tanh(), Layer(6, 2))


def build_batch():
    return (torch.randn(7, 5),)


def loss_fn(output, batch):
    return output.square().mean()
"""


def test_a_gradient_that_is_returned_by_the_flag_of_another_input_is_an_error(inspect_file):
    report = inspect_file(AFFINE.format(index=0))
    (finding,) = report.findings
    assert (finding.rule, finding.severity, finding.parameters) == ("GS505", "error", ("0.weight",))
    assert finding.location.source == "if ctx.needs_input_grad[0]:"
    assert finding.location.line == 18
    assert "Affine.backward returns None for `weight`" in finding.message


def test_a_gradient_that_is_returned_by_its_own_flag_is_right(inspect_file):
    assert not inspect_file(AFFINE.format(index=1)).findings


@pytest.mark.parametrize(
    ("frozen", "severity"), [("", "error"), ("model[0].weight.requires_grad_(False)", None)]
)
def test_a_gradient_that_backward_forgets(inspect_file, frozen, severity):
    text = AFFINE.format(index=1).replace("return grad_x, grad_weight", "return grad_x, None")
    text = text.replace(
        "    return nn.Sequential(Layer(5, 6), nn.Tanh(), Layer(6, 2))",
        "    model = nn.Sequential(Layer(5, 6), nn.Tanh(), nn.Linear(6, 2))\n"
        f"    {frozen}\n    return model",
    )
    found = [f for f in inspect_file(text).findings if f.rule == "GS505"]
    assert [f.severity for f in found] == ([severity] if severity else [])
    assert all(f.location.source == "return grad_x, None" for f in found)


def test_what_lies_before_a_function_without_a_gradient_is_named():
    stopping = function(lambda ctx, x: x * 2, lambda ctx, grad: None)
    found = [f for f in inspected(stopping.apply).findings if f.rule == "GS505"]
    assert [f.parameters for f in found] == [("first.weight", "first.bias")]


def test_the_function_is_left_as_it_was():
    own, inherited = vars(Swish)["forward"], type("Heir", (Swish,), {})
    inspected(inherited.apply)
    assert vars(Swish)["forward"] is own
    assert "forward" not in vars(inherited)


def test_no_probing_no_check():
    report = inspected(WRONG["sign"][0], probe_steps=0)
    assert not report.findings
    (skipped,) = [one for one in report.rules.skipped if one.rule == "GS505"]
    assert "may not be repeated" in skipped.reason


def test_line_of_a_backward_without_source():
    scope: dict[str, type] = {"Function": Function}
    exec("class F(Function):\n @staticmethod\n def backward(ctx, g):\n  return g", scope)
    assert backward_code(scope["F"]).number == 2


IN_FLOAT32 = {
    "casts": (lambda x: x.float() * 2, lambda g: g.float() * 2),
    "casts within": (lambda x: x.float().exp().to(x.dtype), None),
    "constants": (lambda x: x @ torch.ones(6, 6), lambda g: g @ torch.ones(6, 6)),
}


@pytest.mark.nightly
@pytest.mark.parametrize(("forward", "backward"), IN_FLOAT32.values(), ids=IN_FLOAT32)
@pytest.mark.parametrize("factor", [1.0, 1.2])
def test_functions_that_know_no_float64(forward, backward, factor):
    def keep(ctx, x):
        save(ctx, x.exp())
        return forward(x)

    def give(ctx, g):
        return factor * (backward(g) if backward else g * ctx.saved_tensors[0])

    record = record_of(function(keep, give).apply)
    (check,) = record.inputs
    assert (check.dtype, record.outcome) == ("float32", "right" if factor == 1 else "wrong")
    assert check.deviation == pytest.approx(1 - 1 / factor, abs=2e-3)


@pytest.mark.parametrize(
    ("deviation", "severity"),
    some_on_push(
        [
            (0.01, None),
            (0.010001, "warning"),
            (0.1, "warning"),
            (0.100001, "error"),
            (float("nan"), None),
        ],
        2,
    ),
)
def test_thresholds(deviation, severity):
    recording = inspected(WRONG["sign"][0]).recording
    (record,) = recording.evidence_of(CustomFunctionRecord)
    checks = tuple(dataclasses.replace(one, deviation=deviation) for one in record.inputs)
    changed = dataclasses.replace(
        recording,
        evidence=tuple(
            dataclasses.replace(one, inputs=checks) if one is record else one
            for one in recording.evidence
        ),
    )
    found = [f.severity for f in judge(changed).findings if f.rule == WrongCustomGradient.code]
    assert found == ([] if severity is None else [severity])


CHECKPOINTED = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Dropout({drop}))
        self.head = nn.Linear(6, 1)

    def forward(self, x):
        x = checkpoint(self.inner, x, use_reentrant=False, preserve_rng_state={keep})  # <-
        return self.head(x)

def build_model():
    return Net()

def build_batch():
    return torch.randn(8, 6)

def loss_fn(output, batch):
    return output.square().mean()
"""


def test_checkpoint_that_draws_other_masks_in_backward_is_an_error(inspect_file):
    text = CHECKPOINTED.format(drop=0.5, keep=False)
    (found,) = inspect_file(text).findings
    assert (found.rule, found.severity) == ("GS505", "error")
    assert found.location.line == 1 + text[: text.index("# <-")].count("\n")


@pytest.mark.parametrize(("drop", "keep"), [(0.5, True), (0.0, False)])
def test_checkpoint_that_repeats_its_forward_is_right(inspect_file, drop, keep):
    assert not inspect_file(CHECKPOINTED.format(drop=drop, keep=keep)).findings
