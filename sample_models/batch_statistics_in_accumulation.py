"""Gradient accumulation, done right, over a model with batch norm.

Watch it with `gradscope run sample_models/batch_statistics_in_accumulation.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def batches() -> list[tuple[Tensor, Tensor]]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    noise = 0.5 * torch.randn(32, 32, 20, generator=generator)
    return [(centres[target] + one, target) for one in noise]


def main() -> None:
    """Train for an epoch, with a step after every four micro-batches."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for place, (features, target) in enumerate(batches(), 1):
        loss = functional.cross_entropy(model(features), target)
        (loss / 4).backward()  # GS310
        if place % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
