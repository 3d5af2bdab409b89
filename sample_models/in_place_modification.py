"""Attention weights that are masked in place, after the softmax.

Softmax keeps its result for its backward, and the assignment overwrites it: autograd notices, and
raises. The scores have to be masked, before the softmax, by `masked_fill`.
"""

import torch
from torch import Tensor, nn


class Pooling(nn.Module):
    """Weighs the steps of a sequence, and leaves the padding out."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(8, 1)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor, is_padding: Tensor) -> Tensor:
        """Return the logits of every sequence."""
        weights = torch.softmax(self.score(x).squeeze(-1), dim=-1)
        weights[is_padding] = 0  # GS503
        return self.head((weights[..., None] * x).sum(1))


def build_model() -> nn.Module:
    """Return the model."""
    return Pooling()


def build_batch() -> dict[str, Tensor]:
    """Return sequences, their padding, and classes."""
    is_padding = torch.arange(10) >= torch.randint(4, 11, (16, 1))
    return {
        "x": torch.randn(16, 10, 8),
        "is_padding": is_padding,
        "target": torch.randint(0, 2, (16,)),
    }


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Return the cross-entropy."""
    return nn.functional.cross_entropy(output, target)
