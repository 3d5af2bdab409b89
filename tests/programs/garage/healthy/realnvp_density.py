import math

import torch
from sklearn.datasets import make_moons
from torch import nn


class Coupling(nn.Module):
    def __init__(self, dim, hidden, flip):
        super().__init__()
        self.flip = flip
        self.half = dim // 2
        self.scale = nn.Sequential(
            nn.Linear(self.half, hidden), nn.LeakyReLU(), nn.Linear(hidden, dim - self.half), nn.Tanh()
        )
        self.shift = nn.Sequential(
            nn.Linear(self.half, hidden), nn.LeakyReLU(), nn.Linear(hidden, dim - self.half)
        )

    def forward(self, x):
        a, b = x[:, : self.half], x[:, self.half :]
        if self.flip:
            a, b = b, a
        s = self.scale(a)
        b = b * torch.exp(s) + self.shift(a)
        if self.flip:
            a, b = b, a
        return torch.cat([a, b], dim=1), s.sum(dim=1)


class RealNVP(nn.Module):
    def __init__(self, dim=2, hidden=32, depth=4):
        super().__init__()
        self.steps = nn.ModuleList(Coupling(dim, hidden, bool(i % 2)) for i in range(depth))

    def forward(self, x):
        determinants = []
        for step in self.steps:
            x, log_det = step(x)
            determinants.append(log_det)
        return x, torch.stack(determinants)

    def log_prob(self, x):
        z, determinants = self(x)
        prior = -0.5 * (z**2 + math.log(2 * math.pi)).sum(dim=1)
        return prior + determinants.sum(dim=0)


def batches(size, count):
    points, _ = make_moons(size * count, noise=0.06, random_state=0)
    points = torch.tensor(points, dtype=torch.float32)
    points = (points - points.mean(0)) / points.std(0)
    yield from points.split(size)


def train(epochs=3):
    torch.manual_seed(7)
    flow = RealNVP()
    optimizer = torch.optim.Adam(flow.parameters(), lr=5e-4)
    for epoch in range(epochs):
        for x in batches(64, 12):
            loss = -flow.log_prob(x).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
            optimizer.step()
        print(f"epoch {epoch}: nll {loss.item():.3f}")


train()
