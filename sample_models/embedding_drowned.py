"""A recommender that adds the index of each position to the items' embeddings.

Embeddings have a size of one, and the indices go up to 255.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Recommender(nn.Module):
    """Predicts the next item of a session."""

    def __init__(self, items: int = 40, width: int = 16) -> None:
        super().__init__()
        self.items = nn.Embedding(items, width)
        self.norm = nn.LayerNorm(width)
        self.mix = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, items)

    def forward(self, session: Tensor) -> Tensor:
        """Return logits `[batch, time, items]` of items `[batch, time]`."""
        index = torch.arange(session.shape[1], dtype=torch.float32)
        states = self.items(session) + index[:, None]  # GS119
        states, _ = self.mix(self.norm(states))
        return self.head(states)


def build_model() -> nn.Module:
    """A recommender."""
    torch.manual_seed(0)
    return Recommender()


def build_batch() -> tuple[Tensor, Tensor]:
    """Four sessions of 256 items, and the items after each."""
    generator = torch.Generator().manual_seed(1)
    session = torch.randint(40, (4, 257), generator=generator)
    return session[:, :-1], session[:, 1:]


def loss_fn(output: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The cross-entropy."""
    return functional.cross_entropy(output.flatten(0, 1), batch[1].flatten())


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
