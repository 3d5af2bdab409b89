"""A classifier whose hidden layers were initialised to a constant: all of their units are one.

Equal weights get equal gradients, and stay equal for ever.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def build_model() -> nn.Module:
    """Three layers, the hidden ones filled with a constant that keeps activations level."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)
    )
    for layer in model[:4]:
        if isinstance(layer, nn.Linear):
            nn.init.constant_(layer.weight, 0.05)  # GS111
            nn.init.zeros_(layer.bias)
    return model


def build_batch() -> tuple[Tensor, Tensor]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    return centres[target] + 0.5 * torch.randn(32, 20, generator=generator), target


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the logits."""
    return functional.cross_entropy(output, target)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
