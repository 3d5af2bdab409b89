"""Custom functions whose gradients are right, and how the tests inspect a model around one."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import gradscope
from gradscope.recording.evidence.failures import CustomFunctionRecord


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
