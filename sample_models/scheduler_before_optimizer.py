"""A training loop that steps its scheduler first: the first step of the warm-up is lost.

Watch it with `gradscope run sample_models/scheduler_before_optimizer.py`.
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


def main() -> None:
    """Train with a learning rate that falls by a tenth each step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    for features, target in batches():
        scheduler.step()  # GS311
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(features), target)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
