"""Heat equation u_t = k u_xx on the unit interval, solved by a network."""

import math

import torch
from torch import nn

CONDUCTIVITY = 0.1


class Field(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        sizes = [2] + [width] * depth
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.output = nn.Linear(width, 1)
        for layer in [*self.hidden, self.output]:
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x, t):
        h = torch.cat([x, t], dim=1)
        for layer in self.hidden:
            h = torch.tanh(layer(h))
        return self.output(h)


def derivative(u, x):
    return torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]


def residual_loss(field, n=128):
    x = torch.rand(n, 1, requires_grad=True)
    t = torch.rand(n, 1, requires_grad=True)
    u = field(x, t)
    u_xx = derivative(derivative(u, x), x)
    return (derivative(u, t) - CONDUCTIVITY * u_xx).pow(2).mean()


def boundary_loss(field, n=64):
    t = torch.rand(n, 1)
    sides = torch.cat([torch.zeros(n // 2, 1), torch.ones(n // 2, 1)])
    x = torch.rand(n, 1)
    initial = torch.sin(math.pi * x)
    start = field(x, torch.zeros_like(x))
    return field(sides, t).pow(2).mean() + (start - initial).pow(2).mean()


class Balance:
    """Weigh the boundary so that both terms have a similar size."""

    def __init__(self, smallest=1e-6):
        self.smallest = smallest

    def weight(self, residual, boundary):
        return residual / (boundary + self.smallest)


def main():
    torch.manual_seed(12)
    field, balance = Field(), Balance()
    optimizer = torch.optim.Adam(field.parameters(), lr=2e-3)
    for step in range(150):
        residual = residual_loss(field)
        boundary = boundary_loss(field)
        loss = residual + balance.weight(residual, boundary) * boundary
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"{step}: residual {residual.item():.5f} boundary {boundary.item():.5f}")


if __name__ == "__main__":
    main()
