"""A pretrained encoder that was meant to be frozen, and is trained along with its head.

A parameter has no attribute `require_grad`; Python takes it all the same.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Tagger(nn.Module):
    """A head on an encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU())
        self.head = nn.Linear(32, 4)

    def forward(self, features: Tensor) -> Tensor:
        """Map `[batch, 20]` to logits `[batch, 4]`."""
        return self.head(self.encoder(features))


def build_model() -> nn.Module:
    """The tagger, its encoder frozen, or so it seems."""
    torch.manual_seed(0)
    model = Tagger()
    for parameter in model.encoder.parameters():
        parameter.require_grad = False  # GS210
    return model


def build_batch() -> tuple[Tensor, Tensor]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    return centres[target] + 0.5 * torch.randn(32, 20, generator=generator), target


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the logits."""
    return functional.cross_entropy(output, target)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
