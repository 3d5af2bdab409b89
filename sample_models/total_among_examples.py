"""A normalising flow whose log-determinants are summed over the batch, too.

Each example gets the sum of all of them, so that the flow stretches far more than it should.
"""

import math

import torch
from torch import Tensor, nn


class Coupling(nn.Module):
    """Scales and shifts one of two numbers by what a network makes of the other."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 2))

    def forward(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Map points `[batch, 2]` to others, and to log-determinants `[batch]`."""
        first, second = points.chunk(2, dim=-1)
        log_scale, shift = self.network(first).chunk(2, dim=-1)
        moved = second * log_scale.exp() + shift
        return torch.cat((moved, first), dim=-1), log_scale.squeeze(-1)


class Flow(nn.Module):
    """Four couplings."""

    def __init__(self) -> None:
        super().__init__()
        self.couplings = nn.ModuleList(Coupling() for _ in range(4))

    def forward(self, points: Tensor) -> Tensor:
        """Return the log-probabilities `[batch]` of points `[batch, 2]`."""
        log_determinants = []
        for coupling in self.couplings:
            points, log_determinant = coupling(points)
            log_determinants.append(log_determinant)
        prior = -0.5 * (points.square() + math.log(2 * math.pi)).sum(dim=-1)
        return prior + torch.stack(log_determinants).sum()  # GS729


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Flow()


def build_batch() -> Tensor:
    """Points on a circle."""
    angles = torch.linspace(0, 2 * math.pi, 48)
    return torch.stack((angles.cos(), angles.sin()), dim=-1)


def compute_loss(model: nn.Module, batch: Tensor) -> Tensor:
    """Negative log-likelihood of the points."""
    loss: Tensor = -model(batch).mean()
    return loss


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Adam over every parameter."""
    return torch.optim.Adam(model.parameters(), lr=1e-3)
