"""Two tasks one after the other, with elastic weight consolidation."""

import torch
import torch.nn.functional as F
from torch import nn


def fit(model, x, y, steps, penalty=None):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(steps):
        loss = F.cross_entropy(model(x), y)
        if penalty is not None:
            loss = loss + 50 * penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def importance(model, x, y):
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    found = {name: p.grad.pow(2) for name, p in model.named_parameters()}
    model.zero_grad()
    return found


def main():
    torch.manual_seed(5)
    x = torch.randn(96, 12)
    first, second = (x @ torch.randn(12, 4)).argmax(1), (x @ torch.randn(12, 4)).argmax(1)
    model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
    fit(model, x, first, 40)
    fisher = importance(model, x, first)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}

    def penalty():
        return sum(
            (fisher[name] * (p - before[name]) ** 2).sum() for name, p in model.named_parameters()
        )

    fit(model, x, second, 40, penalty)


main()
