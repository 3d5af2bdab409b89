import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(11)


class MultiTask(nn.Module):
    """One trunk, three regression heads of different scales."""

    def __init__(self, features=10, hidden=48):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.heads = nn.ModuleList([nn.Linear(hidden, 1) for _ in range(3)])

    def forward(self, x):
        h = self.trunk(x)
        return torch.cat([head(h) for head in self.heads], dim=1)


class UncertaintyLoss(nn.Module):
    def __init__(self, tasks):
        super().__init__()
        self.log_vars = nn.ParameterList([nn.Parameter(torch.zeros(())) for _ in range(tasks)])

    def forward(self, prediction, target):
        errors = F.mse_loss(prediction, target, reduction="none").mean(0)
        log_vars = torch.tensor([p for p in self.log_vars])
        return (torch.exp(-log_vars) * errors + log_vars).sum()


w = torch.randn(10, 3)


def batch(n=64):
    x = torch.randn(n, 10)
    y = torch.tanh(x @ w) * torch.tensor([0.5, 1.0, 4.0])
    return x, y + 0.05 * torch.randn_like(y)


model = MultiTask()
criterion = UncertaintyLoss(3)
optimizer = torch.optim.Adam(
    [
        {"params": model.parameters(), "lr": 2e-3},
        {"params": criterion.parameters(), "lr": 1e-2},
    ]
)

for step in range(120):
    x, y = batch()
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 0:
        weights = [round(p.item(), 3) for p in criterion.log_vars]
        print(step, round(loss.item(), 4), weights)
