"""A diagonal-plus-coupling flow on 4x4 grey patches, after a logit transform of the pixels."""

import argparse
import math

import torch
from torch import nn


class Logit(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.margin = margin

    def forward(self, x):
        x = self.margin + (1 - 2 * self.margin) * x
        z = torch.log(x) - torch.log1p(-x)
        return z, -(torch.log(x) + torch.log1p(-x)).sum(1)


class Coupling(nn.Module):
    def __init__(self, dim, mask):
        super().__init__()
        self.register_buffer("mask", mask)
        self.net = nn.Sequential(nn.Linear(dim, 48), nn.ReLU(), nn.Linear(48, 2 * dim))

    def forward(self, x):
        log_scale, shift = self.net(x * self.mask).chunk(2, 1)
        log_scale = torch.tanh(log_scale) * (1 - self.mask)
        return x * log_scale.exp() + shift * (1 - self.mask), log_scale.sum(1)


class Flow(nn.Module):
    def __init__(self, dim, layers, margin):
        super().__init__()
        mask = (torch.arange(dim) % 2).float()
        couplings = [Coupling(dim, mask if i % 2 else 1 - mask) for i in range(layers)]
        self.steps = nn.ModuleList([Logit(margin), *couplings])

    def forward(self, x):
        total = 0
        for step in self.steps:
            x, log_det = step(x)
            total = total + log_det
        return total - 0.5 * (x.square() + math.log(2 * math.pi)).sum(1)


def patches(count):
    levels = (torch.rand(count, 16).pow(4) * 256).floor().clamp(max=255)
    ink = torch.rand(count, 16) > 0.1
    dequantised = (levels + torch.rand_like(levels)) / 256
    return dequantised * ink


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--margin", type=float, default=0.01)
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()
    torch.manual_seed(0)
    flow = Flow(16, 4, args.margin)
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
    for step in range(args.steps):
        loss = -flow(patches(64)).mean() / 16
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{loss.item():.3f}")


if __name__ == "__main__":
    main()
