"""A custom linear function that returns the gradient of its weight transposed.

Forward works, and so does backward where the weight is square; here the shapes differ, and autograd
refuses the gradient, without a line of the forward.
"""

import torch
from torch import Tensor, nn


class Multiply(torch.autograd.Function):
    """x @ weight, with a backward of its own."""

    @staticmethod
    def forward(ctx, x, weight):
        """Keep both factors."""
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx, grad_output):
        """Return the gradient of the weight the wrong way round."""
        x, weight = ctx.saved_tensors
        return grad_output @ weight.T, grad_output.T @ x  # GS506


class Projection(nn.Module):
    """A projection without a bias, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 10) / 6**0.5)
        self.head = nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        return self.head(torch.tanh(Multiply.apply(x, self.weight)))


def build_model() -> nn.Module:
    """Return the model."""
    return Projection()


def build_batch() -> tuple[Tensor, Tensor]:
    """Return inputs and classes."""
    return torch.randn(20, 6), torch.randint(0, 3, (20,))


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Return the cross-entropy."""
    return nn.functional.cross_entropy(output, target)
