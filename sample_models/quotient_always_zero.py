"""A denoising model that is told the time of each example as 0, by a division that rounds down."""

import torch
from torch import Tensor, nn
from torch.nn import functional

STEPS = 100


class Denoiser(nn.Module):
    """Predicts the noise in points, given how much of it there is."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Linear(2, 32)
        self.into = nn.Linear(4, 32)
        self.out = nn.Linear(32, 4)

    def forward(self, noisy: Tensor, t: Tensor) -> Tensor:
        """Map points `[batch, 4]` and times `[batch]` to noise `[batch, 4]`."""
        level = (t // STEPS).float()  # GS220
        wave = torch.stack([level.sin(), level.cos()], dim=1)
        return self.out(functional.silu(self.into(noisy) + self.time(wave)))


def build_model() -> nn.Module:
    """The model at its initialisation."""
    torch.manual_seed(0)
    return Denoiser()


def build_batch() -> dict[str, Tensor]:
    """Sixty-four points, their noise, and how far each is on its way to it."""
    generator = torch.Generator().manual_seed(1)
    return {
        "clean": torch.randn(64, 4, generator=generator).sign(),
        "noise": torch.randn(64, 4, generator=generator),
        "t": torch.randint(0, STEPS, (64,), generator=generator),
    }


def compute_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Error of the predicted noise."""
    kept = torch.linspace(0.99, 0.01, STEPS)[batch["t"]].unsqueeze(1)
    noisy = kept.sqrt() * batch["clean"] + (1 - kept).sqrt() * batch["noise"]
    return functional.mse_loss(model(noisy, batch["t"]), batch["noise"])


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=2e-3)
