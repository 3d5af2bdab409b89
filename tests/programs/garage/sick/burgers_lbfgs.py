import math

import torch
from torch import nn


class PINN(nn.Module):
    def __init__(self, width=20, depth=3):
        super().__init__()
        sizes = [2] + [width] * depth + [1]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        for layer in self.layers:
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x, t):
        h = torch.cat([x, t], dim=1)
        for layer in self.layers[:-1]:
            h = torch.tanh(layer(h))
        return self.layers[-1](h)


def gradient(output, inputs):
    return torch.autograd.grad(output, inputs, torch.ones_like(output), create_graph=True)[0]


class Burgers:
    def __init__(self, viscosity=0.05):
        self.viscosity = viscosity
        self.model = PINN()
        self.x = (torch.rand(150, 1) * 2 - 1).requires_grad_(True)
        self.t = torch.rand(150, 1).requires_grad_(True)
        self.x0 = torch.linspace(-1, 1, 40)[:, None]
        self.u0 = -torch.sin(math.pi * self.x0)
        self.tb = torch.rand(40, 1)
        self.optimizer = torch.optim.LBFGS(
            self.model.parameters(), lr=0.5, max_iter=6, history_size=10, line_search_fn=None
        )
        self.calls = 0

    def residual(self):
        u = self.model(self.x, self.t)
        u_x = gradient(u, self.x)
        u_t = gradient(u, self.t)
        u_xx = gradient(u_x, self.x)
        return u_t + u * u_x - self.viscosity * u_xx

    def loss(self):
        physics = self.residual().pow(2).mean()
        initial = (self.model(self.x0, torch.zeros_like(self.x0)) - self.u0).pow(2).mean()
        left = self.model(-torch.ones_like(self.tb), self.tb)
        right = self.model(torch.ones_like(self.tb), self.tb)
        return physics + initial + left.pow(2).mean() + right.pow(2).mean()

    def closure(self):
        loss = self.loss()
        loss.backward()
        self.calls += 1
        return loss

    def fit(self, steps=8):
        for step in range(steps):
            loss = self.optimizer.step(self.closure)
            print(f"{step}: {loss.item():.5f} after {self.calls} calls")


torch.manual_seed(14)
Burgers().fit()
