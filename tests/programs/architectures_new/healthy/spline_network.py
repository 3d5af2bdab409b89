"""A Kolmogorov-Arnold network: each edge is a spline on a fixed grid plus a SiLU."""

import torch
import torch.nn.functional as F
from torch import nn


class SplineLayer(nn.Module):
    def __init__(self, inputs, outputs, grid=8, order=3):
        super().__init__()
        self.order = order
        step = 2 / grid
        knots = torch.arange(-order, grid + order + 1) * step - 1
        self.register_buffer("knots", knots)
        self.base = nn.Parameter(torch.empty(outputs, inputs))
        nn.init.kaiming_uniform_(self.base, a=5**0.5)
        self.coefficients = nn.Parameter(torch.randn(outputs, inputs, grid + order) * 0.03)

    def basis(self, x):
        x, k = x.unsqueeze(-1), self.knots
        b = ((x >= k[:-1]) & (x < k[1:])).float()
        for p in range(1, self.order + 1):
            left = (x - k[: -(p + 1)]) / (k[p:-1] - k[: -(p + 1)])
            right = (k[p + 1 :] - x) / (k[p + 1 :] - k[1:-p])
            b = left * b[..., :-1] + right * b[..., 1:]
        return b

    def forward(self, x):
        return F.linear(F.silu(x), self.base) + torch.einsum("big,oig->bo", self.basis(x), self.coefficients)


def build_model():
    torch.manual_seed(221)
    return nn.Sequential(SplineLayer(4, 12), SplineLayer(12, 12), SplineLayer(12, 12), SplineLayer(12, 1))


def build_batch():
    torch.manual_seed(222)
    x = torch.randn(128, 4)
    return x, torch.exp(torch.sin(torch.pi * x[:, :1]) + x[:, 1:2].square() * 0.3) - x[:, 2:3] * x[:, 3:]


def loss_fn(output, batch):
    return F.huber_loss(output, batch[1])
