"""Twenty sigmoid layers: the gradient vanishes before it reaches the first of them.

A sigmoid's derivative is at most 1/4, so each layer takes away at least three quarters of what
weights of ordinary size let through.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

LAYERS = 20
WIDTH = 16


def build_model() -> nn.Module:
    """The stack and a linear output layer; ReLU in place of the sigmoids would help."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for _ in range(LAYERS):
        layers += [nn.Linear(WIDTH, WIDTH), nn.Sigmoid()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 3))


def build_batch() -> tuple[Tensor, Tensor]:
    """Twelve random inputs of three classes."""
    x = torch.randn(12, WIDTH, generator=torch.Generator().manual_seed(1))
    return x, torch.arange(12) % 3


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the logits."""
    return functional.cross_entropy(output, target)
