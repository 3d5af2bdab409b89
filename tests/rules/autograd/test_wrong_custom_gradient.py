import dataclasses
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import gradscope
from gradscope.capture.source.statements import backward_code
from gradscope.recording.evidence.failures import CustomFunctionRecord
from gradscope.rules.autograd.wrong_custom_gradient import WrongCustomGradient
from gradscope.rules.engine import judge
from tests.nightly import some_on_push
from tests.rules.inspecting import only


def function(forward, backward, **more: object) -> type[Function]:
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward), **more}
    return type("Custom", (Function,), members)


def save(ctx: SimpleNamespace, *tensors: Tensor) -> None:
    ctx.save_for_backward(*tensors)


class Around(nn.Module):
    """A layer, a custom function, a layer."""

    def __init__(self, apply, width: int = 6):
        super().__init__()
        self.first, self.apply_it, self.last = nn.Linear(5, width), apply, nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.apply_it(self.first(x)))


def inspected(apply, **chosen: object):
    return gradscope.inspect(
        Around(apply), torch.randn(7, 5), lambda y: y.square().mean(), **chosen
    )


def record_of(apply) -> CustomFunctionRecord:
    report = inspected(apply)
    assert [f.rule for f in report.findings if f.rule == "GS505"] == (
        ["GS505"] if outcome(report).outcome == "wrong" else []
    )
    return outcome(report)


def outcome(report) -> CustomFunctionRecord:
    (record,) = report.recording.evidence_of(CustomFunctionRecord)
    return record


# Functions as people write them


class Swish(Function):
    @staticmethod
    def forward(ctx, x):
        save(ctx, x)
        return x * x.sigmoid()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        gate = x.sigmoid()
        return grad * gate * (1 + x * (1 - gate))


class ReLU(Function):
    @staticmethod
    def forward(ctx, x):
        save(ctx, x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad.masked_fill(x < 0, 0)


class Linear(Function):
    """With a bias that may be None, and gradients only where they are needed."""

    @staticmethod
    def forward(ctx, x, weight, bias=None):
        save(ctx, x, weight)
        return x @ weight.T if bias is None else x @ weight.T + bias

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        needs = ctx.needs_input_grad
        return (
            grad @ weight if needs[0] else None,
            grad.T @ x if needs[1] else None,
            grad.sum(0) if needs[2] else None,
        )


class Scale(Function):
    """In the newer style, with an argument that is no tensor."""

    @staticmethod
    def forward(x, factor, name):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None, None


class Exp(Function):
    """In place."""

    @staticmethod
    def forward(ctx, x):
        x.exp_()
        ctx.mark_dirty(x)
        save(ctx, x)
        return x

    @staticmethod
    def backward(ctx, grad):
        (result,) = ctx.saved_tensors
        return grad * result


class MeanAndNorm(Function):
    """Several outputs, one of them an index."""

    @staticmethod
    def forward(ctx, x):
        save(ctx, x)
        index = x.argmax(-1)
        ctx.mark_non_differentiable(index)
        return x.mean(-1, keepdim=True), index, x.norm(dim=-1, keepdim=True)

    @staticmethod
    def backward(ctx, mean, index, norm):
        (x,) = ctx.saved_tensors
        return mean / x.shape[-1] * torch.ones_like(x) + norm * x / x.norm(dim=-1, keepdim=True)


class Dropout(Function):
    """Random, and right from the same random state."""

    @staticmethod
    def forward(ctx, x):
        keep = torch.rand_like(x) > 0.5
        save(ctx, keep)
        return x * keep * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0] * 2


def linear(x: Tensor) -> Tensor:
    weight = torch.linspace(-1, 1, 36).view(6, 6).requires_grad_()
    return Linear.apply(x, weight, None)


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


# Gradients that are chosen


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


# Mistakes


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
