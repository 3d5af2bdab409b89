"""A recurrent classifier that reads the last position of its sequences, which is padding.

Inspect it with `gradscope inspect sample_models/read_behind_padding.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Reader(nn.Module):
    """A recurrent layer over tokens, and a classifier of its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 16, padding_idx=0)
        self.layer, self.head = nn.GRU(16, 16, batch_first=True), nn.Linear(16, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of the classes."""
        states, _ = self.layer(self.embed(tokens))
        return self.head(states[:, -1])  # GS125


def build_model() -> nn.Module:
    """Return a model with fixed weights."""
    torch.manual_seed(0)
    return Reader()


def build_batch() -> tuple[Tensor, Tensor]:
    """Return sequences of four to eleven tokens, padded to twelve, and their classes."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, 30, (8, 12), generator=generator)
    tokens[torch.arange(12) >= torch.arange(4, 12)[:, None]] = 0
    return tokens, torch.arange(8) % 4


def loss_fn(output: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the mean loss."""
    return functional.cross_entropy(output, batch[1])
