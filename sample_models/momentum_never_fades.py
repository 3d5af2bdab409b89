"""A regression whose optimizer gets the two betas of Adam in the wrong order.

Inspect it with `gradscope inspect sample_models/momentum_never_fades.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def build_model() -> nn.Module:
    """Return a model with fixed weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer."""
    return torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.999, 0.9))  # GS332


def build_batch() -> tuple[Tensor, Tensor]:
    """Return points, and their sums."""
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(1))
    return x, x.sum(1, keepdim=True)


def loss_fn(output: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the mean squared error."""
    return functional.mse_loss(output, batch[1])
