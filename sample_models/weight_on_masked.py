"""Attention whose mask fills the hidden scores with a tiny number, not with a very negative one.

Inspect it with `gradscope inspect sample_models/weight_on_masked.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Reader(nn.Module):
    """A layer of attention, and a classifier of what it has read."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(16, 16), nn.Linear(16, 16)
        self.value, self.head = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of the classes."""
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 4
        later = torch.ones(6, 6).triu(1).bool()
        scores = scores.masked_fill(later, 1e-9)  # GS123
        weights = functional.softmax(scores, dim=-1)
        return self.head((x + weights @ self.value(x)).mean(1))


def build_model() -> nn.Module:
    """Return a model with fixed weights."""
    torch.manual_seed(0)
    return Reader()


def build_batch() -> tuple[Tensor, Tensor]:
    """Return sequences of vectors, and their classes."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, 6, 16, generator=generator), torch.arange(8) % 4


def loss_fn(output: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the mean loss."""
    return functional.cross_entropy(output, batch[1])
