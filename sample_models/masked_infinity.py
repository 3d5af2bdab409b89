"""A square root of a rectified value, whose infinite slope at zero only the ReLU hides."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Magnitude(nn.Module):
    """Predicts a magnitude from the square root of energies."""

    def __init__(self) -> None:
        super().__init__()
        self.energy, self.head = nn.Linear(8, 24), nn.Linear(24, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return magnitudes `[batch, 1]` of `x`, `[batch, 8]`."""
        root = torch.relu(self.energy(x)).sqrt()  # GS114
        return self.head(root)


def build_model() -> nn.Module:
    """A predictor."""
    torch.manual_seed(0)
    return Magnitude()


def build_batch() -> tuple[Tensor, Tensor]:
    """Forty-eight inputs, and their magnitudes."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(48, 8, generator=generator)
    return x, x.norm(dim=1, keepdim=True)


def loss_fn(output: Tensor, batch: tuple[Tensor, Tensor]) -> Tensor:
    """The squared error."""
    return functional.mse_loss(output, batch[1])


def build_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW over every parameter."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3)
