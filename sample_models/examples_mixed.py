"""A reader of sequences that swaps time and batch by `view`.

The shapes fit, and each example gets time steps of others.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Reader(nn.Module):
    """Classifies sequences of tokens."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.embedding = nn.Embedding(30, width)
        self.recurrent = nn.GRU(width, width)
        self.head = nn.Linear(width, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits `[batch, 4]` of tokens `[batch, time]`."""
        batch, time = tokens.shape
        states, _ = self.recurrent(self.embedding(tokens).transpose(0, 1))
        by_example = states.view(batch, time, -1)  # GS707
        return self.head(by_example.mean(1))


def build_model() -> nn.Module:
    """A reader."""
    torch.manual_seed(0)
    return Reader()


def build_batch() -> tuple[Tensor, Tensor]:
    """Sixteen sequences of six tokens, and their classes."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(30, (16, 6), generator=generator), torch.arange(16) % 4


def loss_fn(output: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The cross-entropy."""
    return functional.cross_entropy(output, batch[1])


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
