"""A classifier of padded texts whose padding mask has True and False swapped.

`key_padding_mask` is True where a key is ignored. Here it is True at the words.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

PAD = 0


class Topics(nn.Module):
    """Attention over the words of a text, read at a key of its own."""

    def __init__(self, words: int = 60, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=PAD)
        self.query = nn.Parameter(torch.randn(1, 1, width) * 0.1)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 4)

    def forward(self, ids: Tensor) -> Tensor:
        """Map words `[batch, length]` to scores `[batch, 4]`."""
        words = torch.cat([self.query.expand(len(ids), -1, -1), self.embed(ids)], dim=1)
        ignored = functional.pad(ids != PAD, (1, 0), value=False)  # GS719
        mixed, _ = self.attention(words, words, words, key_padding_mask=ignored, need_weights=False)
        return self.head(self.norm(words + mixed)[:, 0])


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Topics()


def build_batch() -> tuple[Tensor, Tensor]:
    """Twenty-four texts of 5 to 15 words, and their topics."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 60, (24, 16), generator=generator)
    lengths = torch.randint(5, 16, (24, 1), generator=generator)
    ids[torch.arange(16) >= lengths] = PAD
    return ids, torch.randint(0, 4, (24,), generator=generator)


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the topics."""
    return functional.cross_entropy(output, target)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
