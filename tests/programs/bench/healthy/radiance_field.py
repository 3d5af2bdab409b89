"""A small neural radiance field with volume rendering along rays."""

import torch
from torch import nn
from torch.nn import functional as F


class PositionalEncoding(nn.Module):
    def __init__(self, frequencies=4):
        super().__init__()
        self.register_buffer("bands", 2.0 ** torch.arange(frequencies))

    def forward(self, x):
        angles = x.unsqueeze(-1) * self.bands
        return torch.cat([x, angles.sin().flatten(-2), angles.cos().flatten(-2)], dim=-1)


class RadianceField(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.encode = PositionalEncoding()
        self.trunk = nn.Sequential(nn.Linear(27, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.density = nn.Linear(hidden, 1)
        self.color = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 3))
        nn.init.constant_(self.density.bias, 0.1)

    def forward(self, points):
        h = self.trunk(self.encode(points))
        return F.relu(self.density(h)).squeeze(-1), torch.sigmoid(self.color(h))


def render(field, origins, directions, samples=16, near=1.0, far=4.0):
    t = torch.linspace(near, far, samples)
    points = origins[:, None] + t[None, :, None] * directions[:, None]
    sigma, rgb = field(points)
    delta = (far - near) / samples
    alpha = 1 - torch.exp(-sigma * delta)
    transmittance = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)
    weights = alpha * transmittance[:, :-1]
    background = 1 - weights.sum(dim=1, keepdim=True)
    return (weights.unsqueeze(-1) * rgb).sum(dim=1) + background


def build_model():
    torch.manual_seed(17)
    return RadianceField()


def build_batch():
    g = torch.Generator().manual_seed(18)
    directions = F.normalize(torch.randn(24, 3, generator=g), dim=1)
    origins = -2.5 * directions + 0.2 * torch.randn(24, 3, generator=g)
    return {"origins": origins, "directions": directions, "rgb": torch.rand(24, 3, generator=g)}


def compute_loss(model, batch):
    return F.mse_loss(render(model, batch["origins"], batch["directions"]), batch["rgb"])
