"""A distance whose gradient is NaN where two points are equal; the clip makes it NaN everywhere.

Watch it with `gradscope run sample_models/clip_of_non_finite.py`.
"""

import torch
from torch import nn


class Embedder(nn.Module):
    """Puts points into a plane."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Map `[batch, 6]` to `[batch, 2]`."""
        return self.layers(points)


def main() -> None:
    """Train distances in the plane to be those in space."""
    torch.manual_seed(0)
    model = Embedder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(12):
        first, second = torch.randn(2, 16, 6)
        if step == 8:  # a pair of equal points: the root of 0 has no derivative
            second[3] = first[3]
        wanted = (first - second).norm(dim=1)
        squares = (model(first) - model(second)).square().sum(dim=1)
        loss = (model.scale * squares.sqrt() - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)  # GS408
        optimizer.step()


if __name__ == "__main__":
    main()
