"""A language model that shifts its labels, and gets labels that are shifted already.

Inspect it with `gradscope inspect sample_models/targets_shifted_twice.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class LanguageModel(nn.Module):
    """A GRU that predicts the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 24)
        self.layer = nn.GRU(24, 24, batch_first=True)
        self.head = nn.Linear(24, 32)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of the next tokens."""
        states, _ = self.layer(self.embedding(tokens))
        scores = self.head(states).flatten(0, 1)
        following = functional.pad(labels[:, 1:], (0, 1), value=-100).flatten()
        return functional.cross_entropy(scores, following)  # GS709


def build_model() -> nn.Module:
    """Return a model with fixed weights."""
    torch.manual_seed(0)
    return LanguageModel()


def build_batch() -> dict[str, Tensor]:
    """Return sequences, and as labels the same sequences from the second token on."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 32, (8, 21), generator=generator)
    return {"tokens": tokens[:, :-1], "labels": tokens[:, 1:]}
