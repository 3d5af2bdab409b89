"""Affine coupling flow on two-dimensional data, trained by maximum likelihood."""
import math

import torch
import torch.nn as nn


class Coupling(nn.Module):
    def __init__(self, dim, hidden, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(dim // 2, hidden), nn.Tanh(), nn.Linear(hidden, dim))

    def forward(self, x):
        a, b = x.chunk(2, dim=-1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, dim=-1)
        s = torch.tanh(s)
        b = b * torch.exp(s) + t
        z = torch.cat([b, a] if self.flip else [a, b], dim=-1)
        return z, s.sum(dim=-1).mean()


class Flow(nn.Module):
    def __init__(self, dim=4, hidden=24, depth=4):
        super().__init__()
        self.couplings = nn.ModuleList(Coupling(dim, hidden, i % 2 == 1) for i in range(depth))

    def forward(self, x):
        log_det = 0.0
        for coupling in self.couplings:
            x, term = coupling(x)
            log_det = log_det + term
        return x, log_det


def build_model():
    torch.manual_seed(131)
    return Flow()


def build_batch():
    g = torch.Generator().manual_seed(132)
    x = torch.randn(48, 4, generator=g) * torch.tensor([0.5, 2.0, 1.0, 0.2]) + 0.3
    return x, x


def loss_fn(output, batch):
    z, log_det = output
    log_prior = -0.5 * (z ** 2).sum(dim=-1).mean() - 0.5 * z.shape[-1] * math.log(2 * math.pi)
    return -(log_prior + log_det)
