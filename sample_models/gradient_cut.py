"""A denoising autoencoder whose encoder never learns.

The code is detached to be kept for a plot of the latent space, and the detached code goes on into
the decoder. The loss falls all the same: the decoder learns to read random codes.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Autoencoder(nn.Module):
    """Maps noisy spectra to clean ones by way of a short code."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(24, 16), nn.GELU(), nn.Linear(16, 6))
        self.decoder = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 24))
        self.last_code: Tensor | None = None

    def forward(self, noisy: Tensor) -> Tensor:
        """Map `[batch, 24]` to `[batch, 24]`."""
        code = self.encoder(noisy).detach()  # GS201
        self.last_code = code
        return self.decoder(code)


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Autoencoder()


def build_batch() -> tuple[Tensor, Tensor]:
    """Sixty-four noisy spectra and the clean ones."""
    generator = torch.Generator().manual_seed(1)
    centre = torch.rand(64, 1, generator=generator)
    clean = torch.exp(-(((torch.linspace(0, 1, 24) - centre) / 0.2) ** 2))
    return clean + 0.1 * torch.randn(64, 24, generator=generator), clean


def loss_fn(output: Tensor, target: Tensor) -> Tensor:
    """Mean squared error."""
    return functional.mse_loss(output, target)


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter, those of the encoder among them."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
