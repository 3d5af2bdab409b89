import math

import torch
from torch import nn


class Coupling(nn.Module):
    def __init__(self, dim, flip, hidden=32):
        super().__init__()
        self.flip = flip
        self.half = dim // 2
        self.net = nn.Sequential(
            nn.Linear(self.half, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, 2 * (dim - self.half)),
        )

    def forward(self, x):
        fixed, moved = x[:, : self.half], x[:, self.half :]
        if self.flip:
            fixed, moved = moved, fixed
        scale, shift = self.net(fixed).chunk(2, dim=1)
        moved = moved * scale.exp() + shift
        parts = (moved, fixed) if self.flip else (fixed, moved)
        return torch.cat(parts, dim=1), scale.sum(dim=1)


class Flow(nn.Module):
    def __init__(self, dim=2, depth=6):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(dim, flip=i % 2 == 1) for i in range(depth))

    def forward(self, x):
        log_det = torch.zeros(len(x))
        for layer in self.layers:
            x, change = layer(x)
            log_det = log_det + change
        return x, log_det

    def log_prob(self, x):
        z, log_det = self(x)
        base = -0.5 * (z**2 + math.log(2 * math.pi)).sum(dim=1)
        return base - log_det


def two_moons(n):
    angle = math.pi * torch.rand(n)
    upper = torch.rand(n) < 0.5
    x = torch.where(upper, angle.cos(), 1 - angle.cos())
    y = torch.where(upper, angle.sin(), 0.5 - angle.sin())
    return torch.stack([x, y], dim=1) + 0.05 * torch.randn(n, 2)


def main():
    torch.manual_seed(5)
    flow = Flow()
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
    for step in range(120):
        loss = -flow.log_prob(two_moons(256)).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), 10.0)
        optimizer.step()
        if step % 30 == 0:
            print(f"{step}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
