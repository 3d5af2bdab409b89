"""A diffusion model that is to predict noise that its input does not hold.

Inspect it with `gradscope inspect sample_models/noise_drawn_anew.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Denoiser(nn.Module):
    """Predict the noise in points of a plane."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 2))

    def forward(self, points: Tensor, time: Tensor) -> Tensor:
        """Return the noise in each point."""
        return self.layers(torch.cat((points, time), dim=1))


def build_model() -> nn.Module:
    """Return the model to inspect."""
    return Denoiser()


def build_batch() -> Tensor:
    """Return points on a circle."""
    angle = torch.linspace(0, 6, 64)
    return torch.stack((angle.cos(), angle.sin()), dim=1)


def compute_loss(model: nn.Module, batch: Tensor) -> Tensor:
    """Return the error of the noise that the model finds."""
    time = torch.rand(len(batch), 1)
    noise = torch.randn_like(batch)
    noisy = (1 - time) * batch + time * torch.randn_like(batch)
    return functional.mse_loss(model(noisy, time), noise)  # GS737
