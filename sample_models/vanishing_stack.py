"""Twenty sigmoid layers: the gradient vanishes before it reaches the first of them.

A sigmoid's derivative is at most 1/4, so each layer takes away at least three quarters of what
weights of ordinary size let through.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

LAYERS = 20
WIDTH = 16


class SigmoidStack(nn.Module):
    """Linear layers with a sigmoid after each, and a linear output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, WIDTH]` to logits `[batch, 3]`."""
        for layer in self.layers:
            # ReLU here and shortcuts around the layers would let the gradient through.
            x = torch.sigmoid(layer(x))
        return self.head(x)


def build_model() -> nn.Module:
    """The stack at its initialisation."""
    torch.manual_seed(0)
    return SigmoidStack()


def build_batch() -> tuple[Tensor, Tensor]:
    """Twelve random inputs of three classes."""
    x = torch.randn(12, WIDTH, generator=torch.Generator().manual_seed(1))
    return x, torch.arange(12) % 3


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the logits."""
    return functional.cross_entropy(output, target)
