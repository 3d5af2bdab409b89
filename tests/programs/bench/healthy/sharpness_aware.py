"""Sharpness-aware minimization with a base optimizer."""

import torch
from torch import nn
from torch.nn import functional as F


class SAM:
    def __init__(self, params, base, rho=0.05, **kwargs):
        self.params = list(params)
        self.base = base(self.params, **kwargs)
        self.rho = rho
        self.moved = []

    @torch.no_grad()
    def ascend(self):
        norm = torch.stack([p.grad.norm() for p in self.params]).norm() + 1e-12
        self.moved = [p.grad * (self.rho / norm) for p in self.params]
        for p, e in zip(self.params, self.moved):
            p.add_(e)

    @torch.no_grad()
    def descend(self):
        for p, e in zip(self.params, self.moved):
            p.sub_(e)
        self.base.step()

    def zero_grad(self):
        self.base.zero_grad()


def main():
    torch.manual_seed(15)
    model = nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
    w = torch.randn(12, 3)
    for step in range(40):
        x = torch.randn(64, 12)
        y = (x @ w).argmax(1)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.ascend()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.descend()
        optimizer.zero_grad()
        if step % 10 == 0:
            print(f"{step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
