"""A physics-informed network for a decaying oscillator, solved with LBFGS."""

import torch
from torch import nn


class Field(nn.Module):
    def __init__(self, width=20):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, t):
        return self.net(t)


def derivative(y, t):
    return torch.autograd.grad(y, t, torch.ones_like(y), create_graph=True)[0]


def residual(model, t):
    t = t.clone().requires_grad_(True)
    u = model(t)
    first = derivative(u, t)
    return derivative(first, t) + 0.4 * first + 4.0 * u


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Field()
    inside = torch.linspace(0, 2, 40).unsqueeze(1)
    start = torch.zeros(1, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, history_size=10)

    def closure():
        optimizer.zero_grad()
        at_start = start.clone().requires_grad_(True)
        u = model(at_start)
        loss = (
            residual(model, inside).square().mean()
            + (u - 1).square().mean()
            + derivative(u, at_start).square().mean()
        )
        loss.backward()
        return loss

    for step in range(12):
        loss = optimizer.step(closure)
        print(f"step {step} loss {float(loss):.5f}")


main()
