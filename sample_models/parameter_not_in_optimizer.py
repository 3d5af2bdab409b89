"""A two-tower model for retrieval whose projections were added after the optimizer was made.

Everything below the projections learns, and the projections themselves stay random. The loss falls
all the same.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class TwoTowers(nn.Module):
    """Scores queries against documents."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 32))
        self.document = nn.Sequential(nn.Linear(24, 32), nn.GELU(), nn.Linear(32, 32))
        self.project_query: nn.Module = nn.Identity()

    def forward(self, query: Tensor, document: Tensor) -> Tensor:
        """Map `[batch, 16]` and `[batch, 24]` to scores `[batch, batch]`."""
        return self.project_query(self.query(query)) @ self.document(document).T / 32**0.5


def build_model() -> nn.Module:
    """The towers at their initialisation."""
    torch.manual_seed(0)
    return TwoTowers()


def build_batch() -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Sixteen queries, each with its document."""
    generator = torch.Generator().manual_seed(1)
    meaning = torch.randn(16, 8, generator=generator)
    query = meaning @ torch.randn(8, 16, generator=generator)
    document = meaning @ torch.randn(8, 24, generator=generator)
    return (query, document), torch.arange(16)


def loss_fn(scores: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of each query over all documents."""
    return functional.cross_entropy(scores, target)


def build_optimizer(model: TwoTowers) -> torch.optim.Optimizer:
    """AdamW over the towers, and only then the projection."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)  # GS205
    model.project_query = nn.Linear(32, 32)
    return optimizer
