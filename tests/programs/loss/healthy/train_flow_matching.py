"""Flow matching on points of two moons."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def moons(count):
    angle = math.pi * torch.rand(count)
    side = torch.randint(0, 2, (count,)).float()
    x = torch.stack([angle.cos() + side, (1 - 2 * side) * angle.sin() + 0.5 * side], dim=1)
    return x + 0.05 * torch.randn(count, 2)


class Velocity(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2)
        )

    def forward(self, x, t):
        return self.net(torch.cat([x, t], dim=1))


torch.manual_seed(21)
model = Velocity()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(60):
    x1 = moons(128)
    x0 = torch.randn_like(x1)
    t = torch.rand(len(x1), 1)
    x_t = (1 - t) * x0 + t * x1
    target = x1 - x0
    loss = F.mse_loss(model(x_t, t), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
