"""Twenty linear layers whose weights are drawn from N(0, 1): the gradient explodes.

A layer of width 10 multiplies a gradient by about the square root of 10 on its way back, so the
first layers get one that is many orders of magnitude larger than what reaches the last.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

LAYERS = 20
WIDTH = 10


def build_model() -> nn.Module:
    """The stack; weights from N(0, 1 / WIDTH) would keep it level."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))
    for layer in model:
        nn.init.normal_(layer.weight, std=1.0)
    return model


def build_batch() -> tuple[Tensor, Tensor]:
    """Eight random inputs and targets."""
    generator = torch.Generator().manual_seed(1)
    return (
        torch.randn(8, WIDTH, generator=generator),
        torch.randn(8, WIDTH, generator=generator),
    )


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Mean squared error."""
    return functional.mse_loss(output, target)
