"""Fit of a boundary value problem u'' = -sin(x) with a small network."""
import math

import torch
import torch.nn as nn


class Field(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x)


def derivative(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def residual_loss(field, x):
    x = x.clone().requires_grad_(True)
    u = field(x)
    u_xx = derivative(derivative(u, x), x)
    ends = torch.tensor([[0.0], [math.pi]])
    return (u_xx + torch.sin(x)).pow(2).mean() + 10 * field(ends).pow(2).mean()


def solve(iterations=30):
    torch.manual_seed(251)
    field = Field()
    x = torch.linspace(0, math.pi, 40)[:, None]
    opt = torch.optim.LBFGS(field.parameters(), lr=0.3, max_iter=5, history_size=10)

    def closure():
        opt.zero_grad()
        loss = residual_loss(field, x)
        loss.backward()
        return loss

    for k in range(iterations):
        loss = opt.step(closure)
        if k % 5 == 0:
            print(f"{k:3d} residual {loss.item():.3e}")
    with torch.no_grad():
        print("max error", f"{(field(x) - torch.sin(x)).abs().max().item():.2e}")


if __name__ == "__main__":
    solve()
