"""Accumulation over four micro-batches, in epochs of seven: three always join the next window.

Watch it with `gradscope run sample_models/window_carried_over.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


def batches(count: int = 20) -> list[tuple[Tensor, Tensor]]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    noise = 0.5 * torch.randn(count, 32, 20, generator=generator)
    return [(centres[target] + one, target) for one in noise]


def main() -> None:
    """Train for a few epochs."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        for place, (features, target) in enumerate(batches(7), 1):
            loss = functional.cross_entropy(model(features), target)
            (loss / 4).backward()  # GS316
            if place % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()


if __name__ == "__main__":
    main()
