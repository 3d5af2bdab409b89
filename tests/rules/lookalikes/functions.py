"""Functions with a backward of their own that change nothing at first."""

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import FunctionCtx

from tests.rules.lookalikes.case import Step, classification, lookalikes


class _Affine(Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        ctx.save_for_backward(x, scale)
        return x * scale + shift

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, scale = ctx.saved_tensors
        return grad * scale, (grad * x).sum(0), grad.sum(0)


class _Gate(Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, gate: Tensor) -> Tensor:
        ctx.save_for_backward(x, gate)
        return gate * x

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, gate = ctx.saved_tensors
        return gate * grad, (grad * x).sum()


class Affine(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return _Affine.apply(x, self.scale, self.shift)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        return _Gate.apply(x, self.gate)


def own_affine_of_ones_and_zeros() -> Step:
    layers = (nn.Linear(12, 16), Affine(16), nn.ReLU(), nn.Linear(16, 4))
    return classification(nn.Sequential(*layers), 12)


def own_gate_of_one() -> Step:
    layers = (nn.Linear(12, 16), nn.Tanh(), Gate(), nn.Linear(16, 4))
    return classification(nn.Sequential(*layers), 12)


FUNCTIONS = lookalikes(own_affine_of_ones_and_zeros, own_gate_of_one)
