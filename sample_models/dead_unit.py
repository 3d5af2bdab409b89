"""A hidden layer that is nearly all dead: its biases shut most of the ReLUs for every input.

The biases were set far below zero "to make the features sparse". A ReLU whose input is negative for
the whole batch hands nothing back, so that the weights before it never move again.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 64


class SparseFeatures(nn.Module):
    """A classifier with one hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(16, WIDTH)
        self.head = nn.Linear(WIDTH, 4)
        with torch.no_grad():
            self.features.bias[:52].fill_(-5)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, 16]` to logits `[batch, 4]`."""
        x = functional.relu(self.features(x))  # GS105
        return self.head(x)


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return SparseFeatures()


def build_batch() -> tuple[Tensor, Tensor]:
    """Many random inputs of four classes."""
    x = torch.randn(128, 16, generator=torch.Generator().manual_seed(1))
    return x, torch.arange(128) % 4


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the logits."""
    return functional.cross_entropy(output, target)
