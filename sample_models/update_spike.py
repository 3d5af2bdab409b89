"""Sensors that wake up after a long silence: Adam's averages make their first steps huge.

Watch it with `gradscope run --budget none sample_models/update_spike.py`.
"""

import torch
from torch import nn
from torch.nn import functional

FIRST_SIGNAL = 210


class Fusion(nn.Module):
    """Predicts a value from two groups of sensors."""

    def __init__(self) -> None:
        super().__init__()
        self.steady, self.silent = nn.Linear(8, 1), nn.Linear(64, 1, bias=False)

    def forward(self, steady: torch.Tensor, silent: torch.Tensor) -> torch.Tensor:
        """Return values `[batch, 1]`."""
        return self.steady(steady) + self.silent(silent)


def main() -> None:
    """Train it while one group of sensors reads nothing at first."""
    torch.manual_seed(0)
    model = Fusion()
    nn.init.zeros_(model.silent.weight)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for step in range(280):
        steady, silent = torch.randn(64, 8), torch.randn(64, 1).expand(64, 64)
        strength = 0.0 if step < FIRST_SIGNAL else 0.5
        target = 0.1 * (steady.sum(dim=1, keepdim=True) + silent[:, :1]) + 0.5 * torch.randn(64, 1)
        loss = functional.mse_loss(model(steady, strength * silent), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # GS116


if __name__ == "__main__":
    main()
