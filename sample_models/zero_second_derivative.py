"""A physics-informed network with ReLU: the second derivative in its equation is zero.

Inspect it with `gradscope inspect sample_models/zero_second_derivative.py`.
"""

import torch
from torch import Tensor, nn


def build_model() -> nn.Module:
    """Return a network of one variable, with fixed weights."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(1, 32),
        nn.ReLU(),  # GS118
        nn.Linear(32, 1),
    )


def build_batch() -> Tensor:
    """Return points between 0 and 1."""
    return torch.rand(64, 1, generator=torch.Generator().manual_seed(1))


def derivative(values: Tensor, points: Tensor) -> Tensor:
    """Return the derivative of each value with respect to its point."""
    return torch.autograd.grad(values.sum(), points, create_graph=True)[0]


def compute_loss(model: nn.Module, points: Tensor) -> Tensor:
    """Return how far the network is from a solution of u'' + u = 0 with u(0) = 1."""
    points = points.clone().requires_grad_()
    values = model(points)
    curvature = derivative(derivative(values, points), points)
    start = (model(torch.zeros(1, 1)) - 1).square().mean()
    return (curvature + values).square().mean() + start
