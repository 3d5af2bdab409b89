"""A variational autoencoder that draws its codes by `sample()`.

The reconstruction has no say in what the encoder learns.
"""

import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional


class Autoencoder(nn.Module):
    """Codes of three numbers for inputs of twelve."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 6))
        self.decoder = nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, 12))

    def forward(self, x: Tensor) -> tuple[Tensor, Normal]:
        """Return the reconstruction of `x`, `[batch, 12]`, and the distribution of its code."""
        mean, spread = self.encoder(x).chunk(2, dim=1)
        posterior = Normal(mean, functional.softplus(spread) + 1e-3)
        code = posterior.sample()  # GS217
        return self.decoder(code), posterior


def build_model() -> nn.Module:
    """An autoencoder."""
    torch.manual_seed(0)
    return Autoencoder()


def build_batch() -> Tensor:
    """Forty-eight points of a plane in twelve dimensions."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(48, 2, generator=generator) @ torch.randn(2, 12, generator=generator)


def compute_loss(model: nn.Module, batch: Tensor) -> Tensor:
    """The squared error, and the divergence from a standard normal distribution."""
    output, posterior = model(batch)
    divergence = kl_divergence(posterior, Normal(0.0, 1.0)).sum(1).mean()
    return (output - batch).pow(2).sum(1).mean() + 0.1 * divergence


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
