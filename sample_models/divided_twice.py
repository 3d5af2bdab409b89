"""A training loop whose loss is divided by four, and whose helper divides it by four again.

Watch it with `gradscope run sample_models/divided_twice.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

MICRO_BATCHES = 4


def batches() -> list[tuple[Tensor, Tensor]]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    noise = 0.5 * torch.randn(40, 32, 20, generator=generator)
    return [(centres[target] + one, target) for one in noise]


def accumulate(loss: Tensor) -> None:
    """Add the gradients of a micro-batch to those of its batch, as libraries do."""
    (loss / MICRO_BATCHES).backward()


def main() -> None:
    """Train for an epoch, with a step after every four micro-batches."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for place, (features, target) in enumerate(batches(), 1):
        loss = functional.cross_entropy(model(features), target)
        loss = loss / MICRO_BATCHES  # GS320
        accumulate(loss)
        if place % MICRO_BATCHES == 0:
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
