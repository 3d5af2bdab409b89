"""A classifier of normalised weights that lacks a scale for its cosines.

Inspect it with `gradscope inspect sample_models/bounded_logits.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class CosineClassifier(nn.Module):
    """Compares features with the weights of 20 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
        self.weight = nn.Parameter(torch.randn(20, 16))

    def forward(self, x: Tensor) -> Tensor:
        """Return the cosines of features with the weights of each class."""
        features = functional.normalize(self.features(x), dim=1)
        return features @ functional.normalize(self.weight, dim=1).T  # GS738


def build_model() -> nn.Module:
    """Return a model with fixed weights."""
    torch.manual_seed(0)
    return CosineClassifier()


def build_batch() -> tuple[Tensor, Tensor]:
    """Return 40 examples, two of each class, and the classes."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(40, 8, generator=generator), torch.arange(20).repeat(2)


def loss_fn(output: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the cross-entropy of the cosines."""
    return functional.cross_entropy(output, batch[1])
