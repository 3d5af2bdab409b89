"""Low-rank updates of a frozen model that never move: both factors start at zero.

The product of the factors has the derivative of each as the other: with one of them zero the other
waits for a step, with both zero every gradient is exactly zero for ever.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class LowRank(nn.Module):
    """Adds a low-rank update to a frozen linear layer."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        self.linear = linear.requires_grad_(False)
        self.down = nn.Parameter(torch.zeros(rank, linear.in_features))
        self.up = nn.Parameter(torch.zeros(linear.out_features, rank))  # GS204

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, in]` to `[batch, out]`."""
        return self.linear(x) + (x @ self.down.T) @ self.up.T


def build_model() -> nn.Module:
    """A small classifier whose layers are adapted."""
    torch.manual_seed(0)
    return nn.Sequential(LowRank(nn.Linear(14, 20), 4), nn.GELU(), LowRank(nn.Linear(20, 3), 4))


def build_batch() -> tuple[Tensor, Tensor]:
    """Twenty-four random inputs of three classes."""
    x = torch.randn(24, 14, generator=torch.Generator().manual_seed(1))
    return x, torch.arange(24) % 3


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the logits."""
    return functional.cross_entropy(output, target)
