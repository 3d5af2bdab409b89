"""A pretrained encoder that gets a new classifier after the optimizer was made.

The optimizer holds the old classifier, so the new one stays random, and the encoder learns to live
with it.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Encoder(nn.Module):
    """Classifies spectra; pretrained on fifty classes."""

    def __init__(self, classes: int = 50) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(24, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU())
        self.classifier = nn.Linear(32, classes)

    def forward(self, spectrum: Tensor) -> Tensor:
        """Map `[batch, 24]` to logits `[batch, classes]`."""
        return self.classifier(self.features(spectrum))


def build_model() -> nn.Module:
    """The encoder with its old classifier."""
    torch.manual_seed(0)
    return Encoder()


def build_batch() -> tuple[Tensor, Tensor]:
    """Thirty-two spectra of three classes."""
    target = torch.arange(32) % 3
    spectrum = torch.randn(32, 24, generator=torch.Generator().manual_seed(1))
    spectrum[torch.arange(32), target] += 2.0
    return spectrum, target


def loss_fn(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy."""
    return functional.cross_entropy(logits, target)


def build_optimizer(model: Encoder) -> torch.optim.Optimizer:
    """AdamW over the encoder, and only then the classifier of this task."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.classifier = nn.Linear(32, 3)  # GS206
    return optimizer
