"""A memory-saving Swish whose backward has lost a term.

It recomputes the sigmoid instead of keeping it, which is fine; but what backward returns is the
derivative of the sigmoid alone, not of x * sigmoid(x). The loss falls all the same, by the layer
behind it, while the layer before it is trained by wrong gradients.
"""

import torch
from torch import Tensor, nn


class Swish(torch.autograd.Function):
    """x * sigmoid(x), without keeping the sigmoid."""

    @staticmethod
    def forward(ctx, x):
        """Keep the input alone."""
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad_output):
        """Forget that x is a factor too."""
        (x,) = ctx.saved_tensors
        gate = torch.sigmoid(x)
        return grad_output * gate * (1 - gate)  # GS505


class GatedMLP(nn.Module):
    """Two layers with a Swish between them."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(12, 24)
        self.leave = nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return the classes' logits."""
        return self.leave(Swish.apply(self.enter(x)))


def build_model() -> nn.Module:
    """Return the model."""
    return GatedMLP()


def build_batch() -> tuple[Tensor, Tensor]:
    """Return inputs and classes."""
    x = torch.randn(32, 12)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Return the cross-entropy."""
    return nn.functional.cross_entropy(output, target)
