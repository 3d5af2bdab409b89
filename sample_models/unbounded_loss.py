"""A variational autoencoder whose divergence has a plus where a minus belongs.

Watch it with `gradscope run sample_models/unbounded_loss.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, CODE = 16, 4


class Autoencoder(nn.Module):
    """Codes rows as a mean and the logarithm of a variance."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Linear(32, 2 * CODE))
        self.decoder = nn.Sequential(nn.Linear(CODE, 32), nn.ReLU(), nn.Linear(32, WIDTH))

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map `[batch, 16]` to its reconstruction, and to the code's mean and log-variance."""
        mean, log_variance = self.encoder(rows).chunk(2, dim=-1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(code), mean, log_variance


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Meant as the divergence from the standard normal distribution; the last sign is wrong."""
    return -0.5 * (1 + log_variance - mean.square() + log_variance.exp()).sum(dim=-1).mean()


def main() -> None:
    """Train it on random rows."""
    torch.manual_seed(0)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(200):
        rows = torch.rand(64, WIDTH)
        reconstruction, mean, log_variance = model(rows)
        error = functional.mse_loss(reconstruction, rows)
        loss = error + divergence(mean, log_variance)  # GS728
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
