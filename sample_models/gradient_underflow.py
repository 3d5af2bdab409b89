"""A model of sound pressure in pascals whose loss scale is too small for its float16 gradients.

The targets are around 1e-4, and so are the differences from them: even times 64, most of their
gradients fall below 6e-8 on their way back through float16 and become zero.
"""

import torch
from torch import Tensor, nn


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))


def build_batch() -> tuple[Tensor, Tensor]:
    """Positions of 256 microphones, and the pressure at each."""
    positions = torch.randn(256, 8, generator=torch.Generator().manual_seed(1))
    return positions, 1e-4 * positions.sum(1, keepdim=True)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Mean squared error in square pascals."""
    positions, pressure = batch
    with torch.autocast("cpu", dtype=torch.float16):
        predicted = model(positions) * 1e-4
    loss = (predicted.float() - pressure).square().mean()
    return 64.0 * loss  # GS601


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
