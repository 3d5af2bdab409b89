"""A classifier whose group head never learns: the fine head is told its choice by `argmax`.

The group that the head chooses is looked up in an embedding. The embedding learns, the trunk learns
by way of the fine head, and the head that chooses stays as it was.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class TwoLevels(nn.Module):
    """Classifies finely, with the help of a coarse choice."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 24), nn.GELU())
        self.group_head = nn.Linear(24, 3)
        self.groups = nn.Embedding(3, 6)
        self.fine_head = nn.Linear(24 + 6, 9)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, 12]` to logits `[batch, 9]`."""
        hidden = self.trunk(x)
        group = self.group_head(hidden).argmax(dim=-1)  # GS202
        return self.fine_head(torch.cat([hidden, self.groups(group)], dim=-1))


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return TwoLevels()


def build_batch() -> tuple[Tensor, Tensor]:
    """Seventy-two random inputs of nine classes."""
    x = torch.randn(72, 12, generator=torch.Generator().manual_seed(1))
    return x, torch.arange(72) % 9


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the logits."""
    return functional.cross_entropy(output, target)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter, those of the group head among them."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
