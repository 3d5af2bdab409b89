"""A classifier whose head is in the optimizer twice: by its own name, and with the whole model.

Each step updates the head two times. torch warns of it when the optimizer is made.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Classifier(nn.Module):
    """A head on a body."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU())
        self.head = nn.Linear(32, 4)

    def forward(self, features: Tensor) -> Tensor:
        """Map `[batch, 20]` to logits `[batch, 4]`."""
        return self.head(self.body(features))


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Classifier()


def build_batch() -> tuple[Tensor, Tensor]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    return centres[target] + 0.5 * torch.randn(32, 20, generator=generator), target


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the logits."""
    return functional.cross_entropy(output, target)


def build_optimizer(model: Classifier) -> torch.optim.Optimizer:
    """AdamW over the head, and over everything."""
    parameters = list(model.head.parameters()) + list(model.parameters())
    return torch.optim.AdamW(parameters, lr=1e-3)  # GS215
