import math

import torch
import torch.nn as nn


class PINN(nn.Module):
    def __init__(self, width=32, depth=3):
        super().__init__()
        sizes = [2] + [width] * depth + [1]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        for layer in self.layers:
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x, t):
        h = torch.cat([x, t], 1)
        for layer in self.layers[:-1]:
            h = torch.tanh(layer(h))
        return self.layers[-1](h)


def residual(model, x, t, speed):
    x.requires_grad_(True)
    t.requires_grad_(True)
    u = model(x, t)
    ones = torch.ones_like(u)
    u_x = torch.autograd.grad(u, x, ones, retain_graph=True)[0]
    u_t = torch.autograd.grad(u, t, ones, retain_graph=True)[0]
    return u_t + speed * u_x


def main(steps=200, speed=1.0):
    torch.manual_seed(0)
    model = PINN()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.995)
    for step in range(steps):
        x0 = torch.rand(64, 1) * 2 - 1
        initial = (model(x0, torch.zeros_like(x0)) - torch.sin(math.pi * x0)).pow(2).mean()
        t = torch.rand(32, 1)
        left = model(-torch.ones_like(t), t)
        right = model(torch.ones_like(t), t)
        boundary = (left - right).pow(2).mean()
        equation = residual(model, torch.rand(128, 1) * 2 - 1, torch.rand(128, 1), speed).pow(2).mean()
        loss = initial + boundary + equation
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 50 == 0:
            print(step, initial.item(), boundary.item(), equation.item())


main()
