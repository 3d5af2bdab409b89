"""A rater of texts that reads the last step of padded sequences.

Unpacking fills the steps after a sequence's end with zeros, so all but the longest get one rating.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Rater(nn.Module):
    """Rates texts of different lengths."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(50, width)
        self.recurrent = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, 5)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return logits `[batch, 5]` of tokens `[batch, time]`."""
        words = self.words(tokens)
        packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.recurrent(packed)[0], batch_first=True)
        last = states[:, -1]  # GS715
        return self.head(last)


def build_model() -> nn.Module:
    """A rater."""
    torch.manual_seed(0)
    return Rater()


def build_batch() -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Sixteen texts of 3 to 8 words, and their ratings."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(3, 7, (16,), generator=generator)
    lengths[4] = 8
    tokens = torch.randint(1, 50, (16, 8), generator=generator)
    tokens[torch.arange(8) >= lengths.unsqueeze(1)] = 0
    return (tokens, lengths), torch.arange(16) % 5


def loss_fn(output: Tensor, batch: tuple[tuple[Tensor, Tensor], Tensor]) -> Tensor:
    """The cross-entropy."""
    return functional.cross_entropy(output, batch[1])


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
