"""A transformer whose encoding of positions runs along the examples of the batch.

Inspect it with `gradscope inspect sample_models/positions_by_example.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Encoding(nn.Module):
    """Add an encoding to each position. The table is meant for states with positions first."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        rates = torch.arange(1, 17).float()
        self.register_buffer("table", torch.sin(torch.arange(50.0)[:, None] / rates).unsqueeze(1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the states with their positions."""
        return x + self.table[: x.size(0)]  # GS124


class Reader(nn.Module):
    """An encoder of tokens, and a classifier of what it has read."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.encode = nn.Embedding(20, 16), Encoding()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of the classes."""
        return self.head(self.layer(self.encode(self.embed(tokens))).mean(1))


def build_model() -> nn.Module:
    """Return a model with fixed weights."""
    torch.manual_seed(0)
    return Reader()


def build_batch() -> tuple[Tensor, Tensor]:
    """Return sequences of tokens, and their classes."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(20, (8, 6), generator=generator), torch.arange(8) % 4


def loss_fn(output: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the mean loss."""
    return functional.cross_entropy(output, batch[1])
