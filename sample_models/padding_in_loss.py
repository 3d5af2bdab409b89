"""A language model whose loss counts the padding of its batch.

Inspect it with `gradscope inspect sample_models/padding_in_loss.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

PAD = 0


class LanguageModel(nn.Module):
    """A GRU that predicts the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 24, padding_idx=PAD)
        self.layer = nn.GRU(24, 24, batch_first=True)
        self.head = nn.Linear(24, 32)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of the next tokens."""
        states, _ = self.layer(self.embedding(tokens))
        scores: Tensor = self.head(states)
        return scores


def build_model() -> nn.Module:
    """Return a model with fixed weights."""
    torch.manual_seed(0)
    return LanguageModel()


def build_batch() -> Tensor:
    """Return sequences of different lengths."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(1, 32, (8, 20), generator=generator)
    lengths = torch.tensor([20, 18, 12, 10, 7, 6, 5, 5])
    return tokens.masked_fill(torch.arange(20) >= lengths[:, None], PAD)


def loss_fn(scores: Tensor, tokens: Tensor) -> Tensor:
    """Return the cross-entropy of the next tokens."""
    following = functional.pad(tokens[:, 1:], (0, 1), value=-100)
    return functional.cross_entropy(scores.flatten(0, 1), following.flatten())  # GS711
