"""A normalising flow that learns a density, with the log-determinant subtracted.

The loss rewards layers that shrink the data, so that the flow moves all of them to one point.
"""

import torch
from torch import Tensor, nn


class Coupling(nn.Module):
    """Scales and shifts one half of the features by functions of the other half."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width // 2, 32)
        self.scale_and_shift = nn.Linear(32, width)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Map `[batch, width]` to the same shape, and return the log-determinants, `[batch]`."""
        fixed, moved = features.chunk(2, dim=1)
        scale, shift = self.scale_and_shift(torch.tanh(self.hidden(fixed))).chunk(2, dim=1)
        scale = torch.tanh(scale)
        return torch.cat([moved * torch.exp(scale) + shift, fixed], dim=1), scale.sum(dim=1)


class Flow(nn.Module):
    """Maps data to a normal distribution."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Coupling(4) for _ in range(4))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Map `[batch, 4]` to codes of that shape and log-determinants, `[batch]`."""
        log_det = torch.zeros(len(features))
        for layer in self.layers:
            features, own = layer(features)
            log_det = log_det + own
        return features, log_det


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Flow()


def build_batch() -> tuple[Tensor]:
    """Sixty-four measurements of four correlated quantities."""
    generator = torch.Generator().manual_seed(1)
    return (torch.randn(64, 4, generator=generator).cumsum(dim=1) + 1,)


def compute_loss(model: nn.Module, batch: tuple[Tensor]) -> Tensor:
    """Negative log-likelihood without its constant."""
    codes, log_det = model(batch[0])
    log_prob = -0.5 * codes.square().sum(dim=1)
    return -(log_prob - log_det).mean()  # GS724


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Adam over every parameter."""
    return torch.optim.Adam(model.parameters(), lr=1e-3)
