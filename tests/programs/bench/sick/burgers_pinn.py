"""Physics-informed network for the viscous Burgers equation."""

import math

import torch
from torch import nn


class PINN(nn.Module):
    def __init__(self, hidden=32, depth=3):
        super().__init__()
        layers, d = [], 2
        for _ in range(depth):
            layers += [nn.Linear(d, hidden), nn.ReLU()]
            d = hidden
        self.net = nn.Sequential(*layers, nn.Linear(d, 1))

    def forward(self, x, t):
        return self.net(torch.stack([x, t], dim=1)).squeeze(1)


def derivative(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def residual(model, x, t, nu=0.01 / math.pi):
    x, t = x.clone().requires_grad_(), t.clone().requires_grad_()
    u = model(x, t)
    u_t, u_x = derivative(u, t), derivative(u, x)
    u_xx = derivative(u_x, x)
    return u_t + u * u_x - nu * u_xx


def compute_loss(model, batch):
    physics = residual(model, batch["x"], batch["t"]).pow(2).mean()
    x0 = batch["x_initial"]
    initial = (model(x0, torch.zeros_like(x0)) + torch.sin(math.pi * x0)).pow(2).mean()
    t = batch["t_boundary"]
    boundary = model(torch.ones_like(t), t).pow(2).mean() + model(-torch.ones_like(t), t).pow(2).mean()
    return physics + initial + boundary


def build_model():
    torch.manual_seed(31)
    return PINN()


def build_batch():
    g = torch.Generator().manual_seed(32)
    return {
        "x": 2 * torch.rand(64, generator=g) - 1,
        "t": torch.rand(64, generator=g),
        "x_initial": 2 * torch.rand(32, generator=g) - 1,
        "t_boundary": torch.rand(32, generator=g),
    }
