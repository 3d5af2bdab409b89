"""A neural radiance field that renders rays against a white background."""

import torch
import torch.nn.functional as F
from torch import nn


def encode(x, octaves):
    scale = 2.0 ** torch.arange(octaves) * torch.pi
    angle = (x.unsqueeze(-1) * scale).flatten(-2)
    return torch.cat([x, angle.sin(), angle.cos()], dim=-1)


class RadianceField(nn.Module):
    def __init__(self, width=96, depth=6):
        super().__init__()
        inputs = 3 + 6 * 6
        layers = []
        for i in range(depth):
            layers += [nn.Linear(inputs if i == 0 else width, width), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.density = nn.Linear(width, 1)
        nn.init.constant_(self.density.bias, -1.0)
        self.color = nn.Sequential(
            nn.Linear(width + 3 + 6 * 2, width // 2), nn.ReLU(), nn.Linear(width // 2, 3), nn.Sigmoid()
        )

    def forward(self, origin, direction):
        depth = torch.linspace(2, 6, 32)
        points = origin.unsqueeze(1) + depth.view(1, -1, 1) * direction.unsqueeze(1)
        features = self.body(encode(points / 4, 6))
        density = F.softplus(self.density(features)).squeeze(-1)
        view = encode(direction, 2).unsqueeze(1).expand(-1, len(depth), -1)
        color = self.color(torch.cat([features, view], dim=-1))
        alpha = 1 - torch.exp(-density * (depth[1] - depth[0]))
        through = torch.cumprod(1 - alpha + 1e-10, dim=1)
        through = torch.cat([torch.ones_like(through[:, :1]), through[:, :-1]], dim=1)
        weight = alpha * through
        return (weight.unsqueeze(-1) * color).sum(dim=1) + 1 - weight.sum(dim=1, keepdim=True)


def build_model():
    torch.manual_seed(101)
    return RadianceField()


def build_batch():
    torch.manual_seed(102)
    direction = F.normalize(torch.randn(64, 3), dim=-1)
    return (-4 * direction + 0.1 * torch.randn(64, 3), direction), torch.rand(64, 3)


def loss_fn(output, batch):
    return F.mse_loss(output, batch[1])
