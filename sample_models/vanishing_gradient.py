"""A deep network with a sigmoid after each layer: the gradient vanishes on its way back.

A sigmoid's derivative is at most 1/4. After ten layers hardly anything is left for the first one.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

FEATURES = 20
CLASSES = 4


class Classifier(nn.Module):
    """Ten hidden layers."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(FEATURES, 64)
        self.hidden = nn.ModuleList(nn.Linear(64, 64) for _ in range(9))
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, FEATURES]` to logits `[batch, CLASSES]`."""
        x = torch.sigmoid(self.inputs(x))
        for layer in self.hidden:
            x = torch.sigmoid(layer(x))  # GS102
        return self.head(x)


def build_model() -> nn.Module:
    """The classifier at its initialisation."""
    torch.manual_seed(0)
    return Classifier()


def build_batch() -> tuple[Tensor, Tensor]:
    """Thirty-two rows and their classes."""
    x = torch.randn(32, FEATURES, generator=torch.Generator().manual_seed(1))
    return x, torch.arange(32) % CLASSES


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the logits."""
    return functional.cross_entropy(output, target)
