"""A RealNVP-like flow on eight dimensions."""

import math

import torch
from torch import nn


class Coupling(nn.Module):
    def __init__(self, dim, hidden, flip):
        super().__init__()
        self.flip = flip
        self.half = dim // 2
        self.net = nn.Sequential(nn.Linear(self.half, hidden), nn.Tanh(), nn.Linear(hidden, 2 * self.half))
        for name, value in (("scale_limit", 1.5), ("shift_gain", 1.0)):
            setattr(self, name, nn.Parameter(torch.full((self.half,), value)))

    def forward(self, x):
        first, second = x.chunk(2, dim=-1)
        if self.flip:
            first, second = second, first
        log_scale, shift = self.net(first).chunk(2, dim=-1)
        log_scale = self.scale_limit * torch.tanh(log_scale)
        second = second * log_scale.exp() + self.shift_gain * shift
        halves = (second, first) if self.flip else (first, second)
        return torch.cat(halves, dim=-1), log_scale.sum(-1)


class Flow(nn.Module):
    def __init__(self, dim=8, depth=5, hidden=32):
        super().__init__()
        self.dim = dim
        self.layers = nn.ModuleList(Coupling(dim, hidden, flip=bool(i % 2)) for i in range(depth))

    def log_prob(self, x):
        total = torch.zeros(len(x))
        for layer in self.layers:
            x, log_det = layer(x)
            total = total + log_det
        return total - 0.5 * x.square().sum(-1) - 0.5 * self.dim * math.log(2 * math.pi)

    def forward(self, x):
        return self.log_prob(x)


def build_model():
    torch.manual_seed(0)
    return Flow()


def build_batch():
    torch.manual_seed(1)
    mixing = torch.randn(8, 8) * 0.5
    return torch.randn(64, 8) @ mixing + 0.3


def loss_fn(output, batch):
    return -output.mean() / batch.shape[1]
