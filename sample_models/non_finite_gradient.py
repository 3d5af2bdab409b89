"""A distance whose gradient is NaN although the loss is finite.

The pairs are embedded by one network. Where the two of a pair are equal, the distance is the square
root of zero, and the derivative of the square root is infinite there.
"""

import torch
from torch import Tensor, nn


class PairDistance(nn.Module):
    """The Euclidean distance between two embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 8))

    def forward(self, pairs: Tensor) -> Tensor:
        """Map `[batch, 2, 12]` to distances `[batch]`."""
        first, second = self.embed(pairs).unbind(dim=1)
        squared = (first - second).square().sum(dim=-1)
        # + 1e-8 inside of the root keeps its derivative finite.
        return torch.sqrt(squared)  # GS103


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return PairDistance()


def build_batch() -> tuple[Tensor, Tensor]:
    """Random pairs and whether they belong together; one pair is twice the same input."""
    pairs = torch.randn(24, 2, 12, generator=torch.Generator().manual_seed(1))
    pairs[5, 1] = pairs[5, 0]
    return pairs, torch.arange(24) % 2


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Contrastive loss with a margin of 1."""
    apart = torch.relu(1 - output).square()
    return torch.where(target == 1, output.square(), apart).mean()
