"""Radiance field with positional encoding and volume rendering."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class Encoding(nn.Module):
    def __init__(self, octaves):
        super().__init__()
        self.register_buffer("bands", math.pi * 2.0 ** torch.arange(octaves))

    def forward(self, x):
        args = (x.unsqueeze(-1) * self.bands).flatten(-2)
        return torch.cat([x, args.sin(), args.cos()], -1)


class Field(nn.Module):
    def __init__(self, width=48, octaves=4, density_shift=-3.0):
        super().__init__()
        self.encode, self.encode_dir = Encoding(octaves), Encoding(2)
        self.trunk = nn.Sequential(
            nn.Linear(3 + 6 * octaves, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.density = nn.Linear(width, 1)
        self.colour = nn.Sequential(nn.Linear(width + 15, width // 2), nn.ReLU(), nn.Linear(width // 2, 3), nn.Sigmoid())
        self.density_shift = density_shift

    def forward(self, x, direction):
        h = self.trunk(self.encode(x))
        sigma = F.softplus(self.density(h) + self.density_shift)
        return sigma.squeeze(-1), self.colour(torch.cat([h, self.encode_dir(direction)], -1))


class Renderer(nn.Module):
    def __init__(self, near=1.0, far=4.0, samples=16):
        super().__init__()
        self.field = Field()
        self.register_buffer("depths", torch.linspace(near, far, samples))

    def forward(self, batch):
        origin, direction, _ = batch
        points = origin[:, None] + direction[:, None] * self.depths[:, None]
        sigma, rgb = self.field(points, direction[:, None].expand_as(points))
        gaps = self.depths.diff(append=self.depths[-1:] + 1.0)
        alpha = 1 - torch.exp(-sigma * gaps)
        clear = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
        weight = alpha * clear
        return (weight.unsqueeze(-1) * rgb).sum(1)


def build_model():
    torch.manual_seed(219)
    return Renderer()


def build_batch():
    g = torch.Generator().manual_seed(220)
    direction = F.normalize(torch.randn(64, 3, generator=g) * 0.3 + torch.tensor([0.0, 0.0, 1.0]), dim=-1)
    origin = torch.tensor([0.0, 0.0, -2.5]).expand(64, 3)
    hit = (direction[:, :2].norm(dim=-1, keepdim=True) < 0.35).float()
    return origin, direction, hit * torch.tensor([0.9, 0.4, 0.2])


def loss_fn(output, batch):
    return F.mse_loss(output, batch[2])
