import torch
from torch import nn


class Field(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2))

    def forward(self, t, y):
        return self.net(y)


def rk4_step(f, t, y, h):
    k1 = f(t, y)
    k2 = f(t + h / 2, y + h / 2 * k1)
    k3 = f(t + h / 2, y + h / 2 * k2)
    k4 = f(t + h, y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def odeint(f, y0, times):
    states = [y0]
    y = y0
    for start, end in zip(times[:-1], times[1:]):
        y = rk4_step(f, start, y, end - start)
        states.append(y.detach())
    return torch.stack(states)


def truth(y0, times):
    c, s = times.cos()[:, None], times.sin()[:, None]
    return torch.stack([y0[:, 0] * c + y0[:, 1] * s, y0[:, 1] * c - y0[:, 0] * s], -1)


def train(steps=60):
    torch.manual_seed(0)
    field = Field()
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-2)
    times = torch.linspace(0, 2, 11)
    for step in range(steps):
        y0 = torch.randn(16, 2)
        predicted = odeint(field, y0, times)
        fit = (predicted - truth(y0, times)).pow(2).mean()
        penalty = sum(p.pow(2).sum() for p in field.parameters())
        loss = fit + 1e-4 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, fit.item())


if __name__ == "__main__":
    train()
