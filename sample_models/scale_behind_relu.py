"""A regression that predicts a variance, and makes it positive by a ReLU."""

import torch
from torch import Tensor, nn


class Regression(nn.Module):
    """Predicts a mean and a variance for each example."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 32), nn.Tanh())
        self.mean = nn.Linear(32, 1)
        self.variance = nn.Linear(32, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Map `[batch, 5]` to means and variances `[batch, 1]`."""
        hidden = self.body(x)
        return self.mean(hidden), torch.relu(self.variance(hidden))  # GS731


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Regression()


def build_batch() -> tuple[Tensor, Tensor]:
    """Sixty-four examples whose target is the sum of their features."""
    x = torch.randn(64, 5, generator=torch.Generator().manual_seed(1))
    return x, x.sum(1, keepdim=True)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Negative log-likelihood of a normal distribution, up to a constant."""
    x, target = batch
    mean, variance = model(x)
    variance = variance + 1e-3
    return 0.5 * (variance.log() + (target - mean).square() / variance).mean()


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Adam over every parameter."""
    return torch.optim.Adam(model.parameters(), lr=1e-3)
