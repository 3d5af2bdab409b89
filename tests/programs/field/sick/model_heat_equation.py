import math

import torch
from torch import nn


class FieldNet(nn.Module):
    def __init__(self, width=48, depth=3):
        super().__init__()
        layers = [nn.Linear(2, width), nn.ReLU()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, x, t):
        return self.net(torch.cat([x, t], dim=1))


def derivative(u, v):
    return torch.autograd.grad(u.sum(), v, create_graph=True)[0]


def residual(model, x, t, nu=0.1):
    x = x.clone().requires_grad_(True)
    t = t.clone().requires_grad_(True)
    u = model(x, t)
    u_t = derivative(u, t)
    u_x = derivative(u, x)
    u_xx = derivative(u_x, x)
    return u_t - nu * u_xx


def build_model():
    torch.manual_seed(95)
    return FieldNet()


def build_batch():
    g = torch.Generator().manual_seed(96)
    inside = torch.rand(128, 2, generator=g)
    start = torch.rand(40, 1, generator=g)
    edge_t = torch.rand(40, 1, generator=g)
    edge_x = torch.randint(0, 2, (40, 1), generator=g).float()
    return {"x": inside[:, :1], "t": inside[:, 1:], "start": start, "edge_x": edge_x, "edge_t": edge_t}


def compute_loss(model, batch):
    physics = residual(model, batch["x"], batch["t"]).pow(2).mean()
    initial = (model(batch["start"], torch.zeros_like(batch["start"])) - torch.sin(math.pi * batch["start"])).pow(2).mean()
    boundary = model(batch["edge_x"], batch["edge_t"]).pow(2).mean()
    return physics + initial + boundary
