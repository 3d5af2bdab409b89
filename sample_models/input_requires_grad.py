"""A regression whose inputs require grad for nothing.

A habit from the days of `Variable`: backward computes a gradient of the batch that nobody reads.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Regression(nn.Module):
    """Predicts a number."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, 10]` to `[batch]`."""
        return self.layers(x).squeeze(-1)  # GS209


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Regression()


def build_batch() -> tuple[Tensor, Tensor]:
    """Sixty-four inputs and their sums."""
    x = torch.randn(64, 10, generator=torch.Generator().manual_seed(1))
    return x.clone().requires_grad_(), x.sum(dim=1)


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Mean squared error."""
    return functional.mse_loss(output, target)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
