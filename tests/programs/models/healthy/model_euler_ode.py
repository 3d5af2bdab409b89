"""Neural ODE classifier solved by 60 explicit Euler steps on the unit interval."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Field(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.fc1 = nn.Linear(dim + 1, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def forward(self, t, y):
        time = torch.full_like(y[:, :1], t)
        return self.fc2(F.softplus(self.fc1(torch.cat([y, time], dim=-1))))


class ODEClassifier(nn.Module):
    def __init__(self, n_in=4, dim=12, hidden=32, steps=60, n_classes=2):
        super().__init__()
        self.steps = steps
        self.lift = nn.Linear(n_in, dim)
        self.field = Field(dim, hidden)
        self.head = nn.Linear(dim, n_classes)

    def forward(self, x):
        y = self.lift(x)
        dt = 1.0 / self.steps
        for i in range(self.steps):
            y = y + dt * self.field(i * dt, y)
        return self.head(y)


def build_model():
    torch.manual_seed(301)
    return ODEClassifier()


def build_batch():
    g = torch.Generator().manual_seed(302)
    x = torch.randn(32, 4, generator=g)
    return x, (x.norm(dim=1) > 2).long()


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
