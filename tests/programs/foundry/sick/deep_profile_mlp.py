"""Regression of a galaxy-like profile with a deep plain network built from a config."""
import math
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    inputs: int = 3
    width: int = 40
    depth: int = 14
    activation: str = "Sigmoid"
    lr: float = 5e-3
    steps: int = 25
    batch: int = 128


def build(cfg):
    layers, n = [], cfg.inputs
    for _ in range(cfg.depth):
        layers += [nn.Linear(n, cfg.width), getattr(nn, cfg.activation)()]
        n = cfg.width
    layers.append(nn.Linear(n, 1))
    return nn.Sequential(*layers)


def initialise(module):
    if isinstance(module, nn.Linear):
        nn.init.xavier_normal_(module.weight, gain=1.1)
        nn.init.zeros_(module.bias)


class Profile:
    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def draw(self, n):
        r = 3 * torch.rand(n, 1, generator=self.g)
        phi = 2 * math.pi * torch.rand(n, 1, generator=self.g)
        tilt = torch.rand(n, 1, generator=self.g)
        y = torch.exp(-r) * (1 + tilt * torch.cos(2 * phi))
        return torch.cat([r - 1.5, torch.cos(phi), tilt - 0.5], 1), (y - 0.35) / 0.35


def fit(model, cfg):
    data = Profile(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9)
    loss_fn = nn.MSELoss()
    for step in range(cfg.steps):
        x, y = data.draw(cfg.batch)
        loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(f"{step} {loss.item():.5f}")


if __name__ == "__main__":
    torch.manual_seed(116)
    config = Config()
    network = build(config).apply(initialise)
    fit(network, config)
