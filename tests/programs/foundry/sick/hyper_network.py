"""Implicit representation of curves: a hypernetwork writes the weights of a small sine network."""
import torch
import torch.nn.functional as F
from torch import nn


class SetEncoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.phi = nn.Sequential(nn.Linear(2, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, points):
        return self.phi(points).mean(1)


class WeightWriter(nn.Module):
    def __init__(self, dim, n_in, n_out):
        super().__init__()
        self.n_in, self.n_out = n_in, n_out
        self.to_weight = nn.Linear(dim, n_in * n_out)
        self.to_bias = nn.Linear(dim, n_out)

    def forward(self, code):
        weight = self.to_weight(code).view(self.n_out, self.n_in) / self.n_in**0.5
        bias = self.to_bias(code)
        return nn.Parameter(weight), nn.Parameter(bias)


class HyperSiren(nn.Module):
    def __init__(self, dim=32, width=16):
        super().__init__()
        self.encoder = SetEncoder(dim)
        sizes = [(1, width), (width, width), (width, 1)]
        self.writers = nn.ModuleList(WeightWriter(dim, a, b) for a, b in sizes)
        self.offset = nn.Parameter(torch.zeros(1))

    def forward(self, batch):
        points, where, _ = batch
        codes = self.encoder(points)
        curves = []
        for code, x in zip(codes, where):
            h = x.unsqueeze(-1)
            for i, writer in enumerate(self.writers):
                weight, bias = writer(code)
                h = F.linear(h, weight, bias)
                if i < len(self.writers) - 1:
                    h = torch.sin(5 * h)
            curves.append(h.squeeze(-1) + self.offset)
        return torch.stack(curves)


def build_model():
    torch.manual_seed(203)
    return HyperSiren()


def build_batch():
    g = torch.Generator().manual_seed(204)
    a = torch.rand(6, 1, generator=g) + 0.5
    b = 3 * torch.rand(6, 1, generator=g)
    xs = 2 * torch.rand(6, 12, generator=g) - 1
    where = 2 * torch.rand(6, 20, generator=g) - 1
    curve = lambda x: a * torch.sin(3 * x + b)
    return torch.stack([xs, curve(xs)], -1), where, curve(where)


def loss_fn(output, batch):
    return F.mse_loss(output, batch[2])
