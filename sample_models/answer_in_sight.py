"""A language model whose attention has no causal mask: it sees the tokens that it predicts.

Inspect it with `gradscope inspect sample_models/answer_in_sight.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class LanguageModel(nn.Module):
    """A layer of attention that predicts the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(32, 24), nn.Embedding(20, 24)
        self.mixing, self.out = nn.Linear(24, 72), nn.Linear(24, 24)
        self.norm, self.head = nn.LayerNorm(24), nn.Linear(24, 32)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of the next token at each position."""
        states = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        parts = self.mixing(self.norm(states)).unflatten(-1, (3, 2, 12))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)  # GS730
        return self.head(states + self.out(mixed.transpose(1, 2).flatten(2)))


def build_model() -> nn.Module:
    """Return a model with fixed weights."""
    torch.manual_seed(0)
    return LanguageModel()


def build_batch() -> tuple[Tensor, Tensor]:
    """Return sequences, and the same sequences from the second token on."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 32, (8, 21), generator=generator)
    return tokens[:, :-1], tokens[:, 1:]


def loss_fn(output: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the mean loss of the next tokens."""
    return functional.cross_entropy(output.flatten(0, 1), batch[1].flatten())
