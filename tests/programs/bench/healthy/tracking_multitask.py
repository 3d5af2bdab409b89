"""Multi-task hit classification, regression and counting for tracking."""

import torch
from torch import nn
from torch.nn import functional as F


class Task(nn.Module):
    def __init__(self, name, dim, out, weight=1.0):
        super().__init__()
        self.name, self.weight = name, weight
        self.head = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, out))

    def forward(self, h):
        return self.head(h)


class HitClass(Task):
    def loss(self, out, targets):
        return {"ce": F.cross_entropy(out, targets["class"])}


class Momentum(Task):
    def loss(self, out, targets):
        mu = out.squeeze(-1)
        return {"mse": F.mse_loss(mu, targets["pt"]), "reg": 1e-3 * mu.pow(2).mean()}


class Multiplicity(Task):
    def loss(self, out, targets):
        return {"poisson": F.poisson_nll_loss(out.squeeze(-1), targets["count"])}


class TrackModel(nn.Module):
    def __init__(self, d_in=10, dim=32):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(d_in, dim), nn.ReLU(), nn.Linear(dim, dim), nn.ReLU())
        self.tasks = nn.ModuleList(
            [HitClass("hit", dim, 4), Momentum("pt", dim, 1, 0.5), Multiplicity("count", dim, 1, 0.2)]
        )

    def forward(self, x):
        h = self.encoder(x)
        return {task.name: task(h) for task in self.tasks}

    def total_loss(self, outputs, targets):
        total = 0.0
        for task in self.tasks:
            for value in task.loss(outputs[task.name], targets).values():
                total = total + task.weight * value
        return total


def events(n=48):
    x = torch.randn(n, 10)
    return x, {
        "class": x[:, :4].argmax(1),
        "pt": x[:, 4:6].abs().sum(1),
        "count": torch.poisson(x[:, 6].exp().clamp(max=8)),
    }


if __name__ == "__main__":
    torch.manual_seed(18)
    model = TrackModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    for step in range(40):
        x, targets = events()
        loss = model.total_loss(model(x), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")
