"""A residual network whose blocks are one object, because a list is multiplied."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """A residual layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return features of the same shape."""
        return x + functional.gelu(self.layer(x))


def build_model() -> nn.Module:
    """Four blocks, as it seems."""
    torch.manual_seed(0)
    blocks = nn.Sequential(*[Block(12)] * 4)  # GS219
    return nn.Sequential(nn.Linear(5, 12), blocks, nn.Linear(12, 3))


def build_batch() -> tuple[Tensor, Tensor]:
    """Thirty-two examples of three classes."""
    return torch.randn(32, 5, generator=torch.Generator().manual_seed(1)), torch.arange(32) % 3


def loss_fn(output: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The cross-entropy."""
    return functional.cross_entropy(output, batch[1])


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Adam."""
    return torch.optim.Adam(model.parameters(), lr=0.003)
