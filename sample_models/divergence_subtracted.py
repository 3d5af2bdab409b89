"""A variational autoencoder whose divergence lacks its minus.

The loss rewards codes that lie far from the prior, and has no minimum.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Autoencoder(nn.Module):
    """Encodes measurements as normal distributions, and decodes samples of them."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(16, 32)
        self.mean, self.log_var = nn.Linear(32, 4), nn.Linear(32, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map `[batch, 16]` to a reconstruction, means and log-variances."""
        hidden = functional.gelu(self.hidden(features))
        mean, log_var = self.mean(hidden), self.log_var(hidden)
        code = mean + torch.randn_like(mean) * torch.exp(0.5 * log_var)
        return self.decoder(code), mean, log_var


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Autoencoder()


def build_batch() -> tuple[Tensor]:
    """Sixty-four measurements."""
    return (torch.randn(64, 16, generator=torch.Generator().manual_seed(1)),)


def compute_loss(model: nn.Module, batch: tuple[Tensor]) -> Tensor:
    """Squared error plus divergence."""
    output, mean, log_var = model(batch[0])
    error = functional.mse_loss(output, batch[0])
    divergence = 0.5 * (1 + log_var - mean.square() - log_var.exp()).mean()  # GS727
    return error + 0.1 * divergence


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Adam over every parameter."""
    return torch.optim.Adam(model.parameters(), lr=1e-3)
