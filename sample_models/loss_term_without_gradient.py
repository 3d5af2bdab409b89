"""A penalty on the slope of a network that is a constant.

`autograd.grad` without `create_graph` returns numbers without a history.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def build_model() -> nn.Module:
    """A network that maps points `[batch, 4]` to a height."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 1))


def build_batch() -> tuple[Tensor, Tensor]:
    """Forty-eight points, and their heights."""
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(48, 4, generator=generator)
    return points, points.sin().sum(1, keepdim=True)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The squared error, and a penalty on slopes of other than one."""
    points, height = batch
    points = points.clone().requires_grad_()
    output = model(points)
    (slope,) = torch.autograd.grad(output.sum(), points, retain_graph=True)  # GS704
    penalty = (slope.norm(dim=1) - 1).pow(2).mean()
    return functional.mse_loss(output, height) + 0.5 * penalty


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
