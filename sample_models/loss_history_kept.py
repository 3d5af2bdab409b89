"""A running total of the loss that keeps the graph of every step.

Watch it with `gradscope run sample_models/loss_history_kept.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def batches() -> list[tuple[Tensor, Tensor]]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    noise = 0.5 * torch.randn(60, 32, 20, generator=generator)
    return [(centres[target] + one, target) for one in noise]


def main() -> float:
    """Train a classifier; return its mean loss."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    total = torch.zeros(())
    for features, target in batches():
        loss = functional.cross_entropy(model(features), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = total + loss  # GS315
    return total.item() / 60


if __name__ == "__main__":
    main()
