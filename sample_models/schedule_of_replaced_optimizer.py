"""A training loop whose second stage has a new optimizer and the first stage's schedule.

Watch it with `gradscope run sample_models/schedule_of_replaced_optimizer.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import ExponentialLR

EPOCHS = 6


def batches() -> list[tuple[Tensor, Tensor]]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    noise = 0.5 * torch.randn(10, 32, 20, generator=generator)
    return [(centres[target] + one, target) for one in noise]


def main() -> None:
    """Train with Adam, and then with SGD."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = ExponentialLR(optimizer, gamma=0.8)
    for epoch in range(EPOCHS):
        if epoch == EPOCHS // 2:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for features, target in batches():
            loss = functional.cross_entropy(model(features), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()  # GS325


if __name__ == "__main__":
    main()
