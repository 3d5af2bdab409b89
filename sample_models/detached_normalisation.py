"""A network with a normalization of its own, whose statistics are detached.

Mean and variance count as constants, so the gradient lacks two of its three terms.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class FeatureNorm(nn.Module):
    """Gives the features of each example the mean 0 and the variance 1."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize `[batch, features]`."""
        mean = x.detach().mean(dim=1, keepdim=True)  # GS221
        variance = x.detach().var(dim=1, keepdim=True, correction=0)
        return (x - mean) / (variance + 1e-6).sqrt() * self.gain


class Net(nn.Module):
    """Two normalized layers and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 32), nn.Linear(32, 32)
        self.norm1, self.norm2 = FeatureNorm(32), FeatureNorm(32)
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, 12]` to scores `[batch, 4]`."""
        x = functional.silu(self.norm1(self.first(x)))
        return self.head(functional.silu(self.norm2(self.second(x))))


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Net()


def build_batch() -> tuple[Tensor, Tensor]:
    """Forty examples of four classes."""
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(40, 12, generator=generator)
    return features, features[:, :4].argmax(1)


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of the classes."""
    return functional.cross_entropy(output, target)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
