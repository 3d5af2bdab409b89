"""A loss that is divided for an accumulation, in a loop that steps after each micro-batch.

Watch it with `gradscope run sample_models/scaled_without_accumulation.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def batches() -> list[tuple[Tensor, Tensor]]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    noise = 0.5 * torch.randn(20, 32, 20, generator=generator)
    return [(centres[target] + one, target) for one in noise]


ACCUMULATED = 4


def main() -> None:
    """Train for an epoch; the step was to be in a branch of its own."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for features, target in batches():
        loss = functional.cross_entropy(model(features), target)
        (loss / ACCUMULATED).backward()  # GS313
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
