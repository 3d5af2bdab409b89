"""Small models, batches and losses of the tests of capture."""

import torch
from torch import Tensor, nn


class Through(nn.Module):
    """A linear layer, then whatever a test wants."""

    def __init__(self, then, **parts: nn.Module):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.then = then
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        return self.then(self, self.first(x))


def batch(*shape: int) -> Tensor:
    return torch.randn(*(shape or (3, 4)))


def squares(model: nn.Module) -> Tensor:
    return model(batch()).square().mean()
