"""Sharpness-aware minimization around SGD."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class SharpnessAware:
    def __init__(self, params, base, rho, **kwargs):
        self.params, self.rho = list(params), rho
        self.base = base(self.params, **kwargs)
        self.shift = {}

    @torch.no_grad()
    def ascend(self):
        norm = torch.stack([p.grad.norm() for p in self.params]).norm() + 1e-12
        for p in self.params:
            self.shift[p] = p.grad * (self.rho / norm)
            p.add_(self.shift[p])
        self.base.zero_grad()

    @torch.no_grad()
    def descend(self):
        for p in self.params:
            p.sub_(self.shift[p])
        self.base.step()
        self.base.zero_grad()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rho", type=float, default=0.05)
    parser.add_argument("--epochs", type=int, default=6)
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(256, 12)
    y = ((x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 1).long())
    model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 3))
    optimizer = SharpnessAware(model.parameters(), torch.optim.SGD, args.rho, lr=0.1, momentum=0.9)
    for epoch in range(args.epochs):
        for rows in torch.randperm(len(x)).split(32):
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.ascend()
            loss = F.cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            optimizer.descend()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
