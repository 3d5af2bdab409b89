"""A deep autoencoder without normalisation, initialised too large: its gradient explodes.

Each layer of 48 units whose weights have a standard deviation of 0.4 multiplies a gradient by about
two on its way back, and there are sixteen.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

FEATURES = 32
WIDTH = 48
DEPTH = 16


class Autoencoder(nn.Module):
    """Linear layers with ReLU, and a linear one to come back."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(FEATURES, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))
        self.decoder = nn.Linear(WIDTH, FEATURES)
        for layer in self.layers:
            # nn.init.kaiming_normal_ would have drawn them with half of this.
            nn.init.normal_(layer.weight, std=0.4)  # GS101

    def forward(self, x: Tensor) -> Tensor:
        """Map `[batch, FEATURES]` to the same shape."""
        x = functional.relu(self.encoder(x))
        for layer in self.layers:
            x = functional.relu(layer(x))
        return self.decoder(x)


def build_model() -> nn.Module:
    """The autoencoder at its initialisation."""
    torch.manual_seed(0)
    return Autoencoder()


def build_batch() -> Tensor:
    """Sixty-four rows of features."""
    return torch.randn(64, FEATURES, generator=torch.Generator().manual_seed(1))


def loss_fn(output: Tensor, batch: Tensor) -> Tensor:
    """Mean squared error of the reconstruction."""
    return functional.mse_loss(output, batch)
