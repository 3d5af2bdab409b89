"""Two views of each example, compared with all views, and with themselves.

The loss is to find the other view of each. But each view is most similar to itself.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

TEMPERATURE = 0.2


class Views(nn.Module):
    """Maps views of examples to the unit sphere."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 48), nn.GELU(), nn.Linear(48, 16))

    def forward(self, views: Tensor) -> Tensor:
        """Map `[2 * batch, 20]` to unit vectors `[2 * batch, 16]`."""
        return functional.normalize(self.encoder(views), dim=1)


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Views()


def build_batch() -> tuple[Tensor, Tensor]:
    """Two views of 24 examples, one behind the other, and the position of the other view."""
    generator = torch.Generator().manual_seed(1)
    examples = torch.randn(24, 20, generator=generator).repeat(2, 1)
    views = examples + 0.3 * torch.randn(48, 20, generator=generator)
    return views, (torch.arange(48) + 24) % 48


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy over the similarities of all views."""
    similarities = output @ output.T / TEMPERATURE
    return functional.cross_entropy(similarities, target)  # GS717


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
