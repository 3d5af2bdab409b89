"""Train an energy function by contrastive divergence; the loss is divided by its own running size."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class RunningScale:
    rate: float = 0.1
    value: torch.Tensor = None

    def __call__(self, loss):
        size = loss.abs()
        if self.value is None:
            self.value = size
        else:
            self.value = (1 - self.rate) * self.value + self.rate * size
        return loss / (self.value + 1e-2)


class Energy(nn.Module):
    def __init__(self, dim=2, hidden=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, hidden), nn.Softplus(), nn.Linear(hidden, hidden), nn.Softplus(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1) + 0.05 * x.square().sum(-1)


def langevin(energy, start, steps=8, size=0.05):
    x = start.clone()
    for _ in range(steps):
        x.requires_grad_(True)
        (slope,) = torch.autograd.grad(energy(x).sum(), x)
        x = (x - size * slope + (2 * size) ** 0.5 * 0.1 * torch.randn_like(x)).detach()
    return x


def moons(count):
    angle = torch.rand(count) * 3.14159
    side = torch.randint(0, 2, (count,)).float()
    x = angle.cos() + side - 0.5
    y = angle.sin() * (1 - 2 * side) + 0.25 * side
    return torch.stack([x, y], 1) + 0.05 * torch.randn(count, 2)


def main(steps=30):
    torch.manual_seed(0)
    energy, scale = Energy(), RunningScale()
    optimizer = torch.optim.Adam(energy.parameters(), lr=1e-3)
    buffer = torch.randn(256, 2)
    for step in range(steps):
        index = torch.randint(0, 256, (64,))
        negative = langevin(energy, buffer[index])
        buffer[index] = negative
        positive = energy(moons(64))
        fake = energy(negative)
        loss = scale(positive.mean() - fake.mean() + 0.1 * (positive.square() + fake.square()).mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(float(scale.value))


main()
