"""A classifier whose last layer starts with weights that are far too large."""

import torch
from torch import Tensor, nn
from torch.nn import functional


def build_model() -> nn.Module:
    """A network that maps `[batch, 16]` to logits of six classes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 6))
    nn.init.normal_(model[2].weight, std=3.0)
    return model


def build_batch() -> tuple[Tensor, Tensor]:
    """Sixty points and their classes."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(60, 16, generator=generator), torch.arange(60) % 6


def loss_fn(output: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The cross-entropy."""
    return functional.cross_entropy(output, batch[1])  # GS706


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
