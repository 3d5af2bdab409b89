"""A classifier of several labels for each example, trained with a cross-entropy.

Inspect it with `gradscope inspect sample_models/targets_not_probabilities.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def build_model() -> nn.Module:
    """Return a model with fixed weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 5))


def build_batch() -> tuple[Tensor, Tensor]:
    """Return points, and which of five labels each of them has."""
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(1))
    return x, (x[:, :5] > 0).float()


def loss_fn(output: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the mean loss."""
    return functional.cross_entropy(output, batch[1])  # GS739
