"""A deep tanh network for u_t = a u_xx on the unit square."""

import torch
from torch import nn


def derivative(of, by):
    return torch.autograd.grad(of, by, torch.ones_like(of), create_graph=True)[0]


class Field(nn.Module):
    def __init__(self, width=24, depth=8):
        super().__init__()
        sizes = [2] + [width] * depth
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.out = nn.Linear(width, 1)
        for layer in self.hidden:
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(layer.bias)

    def forward(self, points):
        h = points
        for layer in self.hidden:
            h = torch.tanh(layer(h))
        return self.out(h)


class HeatProblem(nn.Module):
    def __init__(self, diffusivity=0.1):
        super().__init__()
        self.field = Field()
        self.diffusivity = diffusivity

    def forward(self, inside, start, edge):
        x, t = (column.clone().requires_grad_() for column in inside.split(1, dim=1))
        u = self.field(torch.cat([x, t], 1))
        u_x = derivative(u, x)
        residual = derivative(u, t) - self.diffusivity * derivative(u_x, x)
        return {"residual": residual, "start": self.field(start), "edge": self.field(edge)}


def build_model():
    torch.manual_seed(0)
    return HeatProblem()


def build_batch():
    torch.manual_seed(1)
    inside = torch.rand(128, 2)
    start = torch.cat([torch.rand(64, 1), torch.zeros(64, 1)], 1)
    edge = torch.cat([torch.randint(0, 2, (64, 1)).float(), torch.rand(64, 1)], 1)
    return inside, start, edge


def loss_fn(output, batch):
    wave = torch.sin(torch.pi * batch[1][:, :1])
    physics = output["residual"].square().mean()
    return physics + (output["start"] - wave).square().mean() + output["edge"].square().mean()
