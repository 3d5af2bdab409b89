"""A policy gradient of probabilities, whose logarithm is missing.

Inspect it with `gradscope inspect sample_models/probability_as_likelihood.py`.
"""

import torch
from torch import Tensor, nn


def build_model() -> nn.Module:
    """Return a policy over three actions."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3), nn.Softmax(dim=1))


def build_batch() -> tuple[Tensor, Tensor]:
    """Return states, and the actions that were taken in them."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(16, 4, generator=generator), torch.arange(16) % 3


def loss_fn(output: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the loss of the policy, which gets higher returns in later steps."""
    chosen = output.gather(1, batch[1][:, None]).squeeze(1)
    returns = torch.linspace(0.1, 1.0, 16)
    return -(chosen * returns).mean()  # GS736
