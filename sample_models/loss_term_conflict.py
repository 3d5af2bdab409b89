"""Two forecasts from one head, with targets that nearly exclude each other.

One term draws the output to the demand of the day, the other to its opposite: what a step does for
one it undoes for the other.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, 1))


def build_batch() -> tuple[Tensor, Tensor]:
    """Ninety-six days, and the demand on each."""
    generator = torch.Generator().manual_seed(1)
    days = torch.randn(96, 12, generator=generator)
    return days, 2.0 * days[:, :1] - days[:, 4:5]


def loss_fn(output: Tensor, target: Tensor) -> dict[str, Tensor]:
    """The sum of both errors, and the errors by name."""
    demand = functional.mse_loss(output, target)  # GS703
    surplus = functional.mse_loss(output, 0.5 - target)
    return {"loss": demand + surplus, "demand": demand, "surplus": surplus}


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
