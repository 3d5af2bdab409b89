"""A training loop whose schedule is planned for all batches and stepped once an epoch.

Watch it with `gradscope run sample_models/schedule_stepped_rarely.py`.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import OneCycleLR

EPOCHS = 4


def batches() -> list[tuple[Tensor, Tensor]]:
    """Points of four classes, each around a centre of its own."""
    generator = torch.Generator().manual_seed(1)
    centres = torch.randn(4, 20, generator=generator)
    target = torch.arange(32) % 4
    noise = 0.5 * torch.randn(10, 32, 20, generator=generator)
    return [(centres[target] + one, target) for one in noise]


def main() -> None:
    """Train for four epochs with a cycle of the learning rate."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = batches()
    schedule = OneCycleLR(optimizer, max_lr=0.1, total_steps=EPOCHS * len(data))
    for _ in range(EPOCHS):
        for features, target in data:
            loss = functional.cross_entropy(model(features), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()  # GS324


if __name__ == "__main__":
    main()
