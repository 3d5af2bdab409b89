"""Fit a spiral with a neural ODE; the solver takes any function of time and state."""

import torch
from torch import nn


def rk4(field, state, times):
    path = [state]
    for now, then in zip(times[:-1], times[1:]):
        h = then - now
        k1 = field(now, state)
        k2 = field(now + h / 2, state + h / 2 * k1)
        k3 = field(now + h / 2, state + h / 2 * k2)
        k4 = field(then, state + h * k3)
        state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        path.append(state)
    return torch.stack(path)


def make_field(dim, hidden):
    network = nn.Sequential(nn.Linear(dim + 1, hidden), nn.Tanh(), nn.Linear(hidden, dim))

    def field(time, state):
        clock = time.expand(state.shape[0], 1)
        return network(torch.cat([state, clock], dim=-1))

    return field, network


class NeuralODE(nn.Module):
    def __init__(self, observed=2, dim=4, hidden=24):
        super().__init__()
        self.lift = nn.Linear(observed, dim)
        self.read = nn.Linear(dim, observed)
        self.field, self.network = make_field(dim, hidden)

    def forward(self, start, times):
        return self.read(rk4(self.field, self.lift(start), times))


def spiral(batch, times):
    start = torch.randn(batch, 2)
    angle = times[:, None, None] * 2.0
    decay = torch.exp(-0.3 * times)[:, None, None]
    x, y = start[None, :, :1], start[None, :, 1:]
    rotated = torch.cat([x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos()], -1)
    return start, decay * rotated


def main(steps=30):
    torch.manual_seed(0)
    times = torch.linspace(0, 2, 9)
    model = NeuralODE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        start, path = spiral(32, times)
        loss = (model(start, times) - path).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{loss.item():.4f}")


main()
