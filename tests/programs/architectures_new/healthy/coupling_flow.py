"""A normalizing flow of affine couplings, activation norms and permutations."""

import math

import torch
from torch import nn


class Coupling(nn.Module):
    def __init__(self, size, width, flip):
        super().__init__()
        self.flip = flip
        half = size // 2
        self.net = nn.Sequential(
            nn.Linear(half, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2 * half)
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)
        self.log_scale = nn.Parameter(torch.zeros(size))
        self.shift = nn.Parameter(torch.zeros(size))
        self.register_buffer("order", torch.randperm(size))

    def forward(self, x):
        x = (x + self.shift) * self.log_scale.exp()
        a, b = x[:, self.order].chunk(2, dim=1)
        s, t = self.net(a).chunk(2, dim=1)
        s = 2 * torch.tanh(s / 2)
        b = b * s.exp() + t
        return torch.cat([b, a] if self.flip else [a, b], dim=1), s.sum(dim=1) + self.log_scale.sum()


class Flow(nn.Module):
    def __init__(self, size=12, depth=16, width=48):
        super().__init__()
        self.couplings = nn.ModuleList([Coupling(size, width, i % 2 == 0) for i in range(depth)])

    def forward(self, x):
        total = torch.zeros(len(x))
        for coupling in self.couplings:
            x, log_determinant = coupling(x)
            total = total + log_determinant
        return -0.5 * x.square().sum(dim=1) - 0.5 * x.shape[1] * math.log(2 * math.pi) + total


def build_model():
    torch.manual_seed(211)
    return Flow()


def build_batch():
    torch.manual_seed(212)
    x = torch.randn(64, 12) @ torch.randn(12, 12) * 0.4 + 1
    return (x,)


def loss_fn(output, batch):
    return -output.mean()
