"""A small radiance field, rendered along rays."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def positional(x, bands=4):
    scaled = x[..., None] * (2.0 ** torch.arange(bands)) * math.pi
    return torch.cat([x, scaled.sin().flatten(-2), scaled.cos().flatten(-2)], -1)


class RadianceField(nn.Module):
    def __init__(self, width=32, bands=4):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(3 + 6 * bands, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.sigma, self.colour = nn.Linear(width, 1), nn.Linear(width, 3)
        nn.init.constant_(self.sigma.bias, -10.0)

    def forward(self, points):
        h = self.trunk(positional(points))
        return F.relu(self.sigma(h)).squeeze(-1), torch.sigmoid(self.colour(h))


def composite(sigma, colour, depth):
    gap = depth[..., 1:] - depth[..., :-1]
    gap = torch.cat([gap, gap[..., -1:]], -1)
    alpha = 1 - torch.exp(-sigma * gap)
    clear = torch.cumprod(torch.cat([torch.ones_like(alpha[..., :1]), 1 - alpha + 1e-10], -1), -1)[..., :-1]
    weights = alpha * clear
    return (weights[..., None] * colour).sum(-2) + 1 - weights.sum(-1, keepdim=True)


class Renderer(nn.Module):
    def __init__(self, samples=16):
        super().__init__()
        self.field, self.samples = RadianceField(), samples

    def forward(self, rays):
        origin, direction = rays[:, :3], rays[:, 3:]
        depth = torch.linspace(1.0, 4.0, self.samples).expand(len(rays), -1)
        points = origin[:, None] + direction[:, None] * depth[..., None]
        return composite(*self.field(points), depth)


def build_model():
    torch.manual_seed(0)
    return Renderer()


def build_batch():
    torch.manual_seed(1)
    origin = torch.randn(64, 3) * 0.1 - torch.tensor([0.0, 0.0, 3.0])
    direction = F.normalize(torch.randn(64, 3) * 0.3 + torch.tensor([0.0, 0.0, 1.0]), dim=1)
    return torch.cat([origin, direction], 1), torch.rand(64, 3)


def loss_fn(output, batch):
    return F.mse_loss(output, batch[1])
