"""A normalizing flow for points in the plane."""

import math

import torch
from torch import nn


class Coupling(nn.Module):
    def __init__(self, flip, width=24):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 2))

    def forward(self, x):
        fixed, moved = x.chunk(2, dim=1)
        if self.flip:
            fixed, moved = moved, fixed
        log_scale, shift = self.net(fixed).chunk(2, dim=1)
        log_scale = torch.tanh(log_scale)
        moved = moved * log_scale.exp() + shift
        pair = (moved, fixed) if self.flip else (fixed, moved)
        return torch.cat(pair, 1), log_scale.sum(1)


class ActNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.shift, self.log_scale = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return (x + self.shift) * self.log_scale.exp(), self.log_scale.sum().expand(len(x))


class Flow(nn.Module):
    def __init__(self, layers=4):
        super().__init__()
        self.layers = nn.ModuleList()
        for i in range(layers):
            self.layers += [ActNorm(2), Coupling(flip=bool(i % 2))]

    def forward(self, x):
        total = torch.zeros(len(x))
        for layer in self.layers:
            x, log_det = layer(x)
            total = total + log_det
        return x, total


def build_model():
    torch.manual_seed(0)
    return Flow()


def build_batch():
    torch.manual_seed(1)
    x = torch.randn(64, 1)
    return torch.cat([x, x.pow(2) - 1 + 0.3 * torch.randn(64, 1)], 1)


def loss_fn(output, batch):
    z, log_det = output
    prior = -0.5 * z.pow(2).sum(1) - math.log(2 * math.pi)
    return -(prior + log_det).mean()
