"""A classifier of two classes with a loss of margins, whose labels are 0 and 1.

`soft_margin_loss` multiplies scores by labels of -1 and 1. A label of 0 leaves a constant.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Spam(nn.Module):
    """Tells spam by the features of a message."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(12, 24)
        self.score = nn.Linear(24, 1)

    def forward(self, features: Tensor) -> Tensor:
        """Map `[batch, 12]` to scores `[batch]`."""
        return self.score(functional.gelu(self.hidden(features))).squeeze(1)


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Spam()


def build_batch() -> tuple[Tensor, Tensor]:
    """Sixty messages, and whether they are spam."""
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(60, 12, generator=generator)
    return features, (features[:, 0] > 0).float()


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Loss of the margins."""
    return functional.soft_margin_loss(output, target)  # GS718


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
