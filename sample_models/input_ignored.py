"""A set encoder that is given a mask and averages over the padding, too."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class SetEncoder(nn.Module):
    """Classifies sets of up to six items."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.item = nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, width))
        self.head = nn.Linear(width, 3)

    def forward(self, items: Tensor, mask: Tensor) -> Tensor:  # GS218
        """Return logits `[batch, 3]` of items `[batch, 6, 5]`."""
        return self.head(self.item(items).mean(1))


def build_model() -> nn.Module:
    """An encoder."""
    torch.manual_seed(0)
    return SetEncoder()


def build_batch() -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Sixteen sets of two to six items, and their classes."""
    generator = torch.Generator().manual_seed(1)
    mask = torch.arange(6)[None] < torch.randint(2, 7, (16, 1), generator=generator)
    items = torch.randn(16, 6, 5, generator=generator) * mask.unsqueeze(-1)
    return (items, mask), torch.arange(16) % 3


def loss_fn(output: Tensor, batch: tuple[tuple[Tensor, Tensor], Tensor]) -> Tensor:
    """The cross-entropy."""
    return functional.cross_entropy(output, batch[1])


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
