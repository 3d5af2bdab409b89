"""A denoising model that is told the time of each example as 0, by a division that rounds down.

Watch it with `gradscope run sample_models/quotient_always_zero.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

STEPS = 100


class Denoiser(nn.Module):
    """Predicts the noise in points, given how much of it there is."""

    def __init__(self, points: int, width: int) -> None:
        super().__init__()
        self.time = nn.Linear(1, width)
        self.into = nn.Linear(points, width)
        self.out = nn.Linear(width, points)

    def forward(self, noisy: Tensor, t: Tensor) -> Tensor:
        """Return the predicted noise."""
        level = (t // STEPS).float().unsqueeze(1)  # GS220
        return self.out(functional.silu(self.into(noisy) + self.time(level)))


def main() -> None:
    """Train on points at two places."""
    torch.manual_seed(0)
    kept = torch.linspace(0.99, 0.01, STEPS)
    model = Denoiser(4, 32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(30):
        clean, noise = torch.randn(64, 4).sign(), torch.randn(64, 4)
        t = torch.randint(0, STEPS, (64,))
        share = kept[t].unsqueeze(1)
        noisy = share.sqrt() * clean + (1 - share).sqrt() * noise
        loss = functional.mse_loss(model(noisy, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
