import torch
import torch.nn.functional as F
from torch import nn


class Dynamics(nn.Module):
    def __init__(self, dim, hidden=32):
        super().__init__()
        self.fc1 = nn.Linear(dim + 1, hidden)
        self.fc2 = nn.Linear(hidden, dim)
        nn.init.orthogonal_(self.fc1.weight, gain=1.5)
        nn.init.orthogonal_(self.fc2.weight, gain=1.5)

    def forward(self, t, x):
        time = torch.full_like(x[:, :1], t)
        return self.fc2(F.softplus(self.fc1(torch.cat([x, time], dim=1)))) - x


def rk4(f, t, x, h):
    k1 = f(t, x)
    k2 = f(t + h / 2, x + h / 2 * k1)
    k3 = f(t + h / 2, x + h / 2 * k2)
    k4 = f(t + h, x + h * k3)
    return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


class Solver(nn.Module):
    def __init__(self, dynamics, end=2.0, steps=16):
        super().__init__()
        self.dynamics = dynamics
        self.end = end
        self.steps = steps

    def forward(self, x):
        h = self.end / self.steps
        for i in range(self.steps):
            x = rk4(self.dynamics, i * h, x, h)
        return x


class OdeClassifier(nn.Module):
    def __init__(self, inputs=6, dim=12, classes=3):
        super().__init__()
        self.enter = nn.Linear(inputs, dim)
        self.solver = Solver(Dynamics(dim))
        self.leave = nn.Linear(dim, classes)

    def forward(self, x):
        return self.leave(self.solver(self.enter(x)))


def build_model():
    torch.manual_seed(52)
    return OdeClassifier()


def build_batch():
    generator = torch.Generator().manual_seed(53)
    return torch.randn(24, 6, generator=generator), torch.randint(
        0, 3, (24,), generator=generator
    )


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
