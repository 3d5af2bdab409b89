"""Depth and class from one trunk, weighted by uncertainty."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class MultiTask(nn.Module):
    def __init__(self, inputs=16, width=32, classes=4):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.depth = nn.Linear(width, 1)
        self.kind = nn.Linear(width, classes)

    def forward(self, x):
        h = self.trunk(x)
        return self.depth(h).squeeze(-1), self.kind(h)


class UncertaintyLoss(nn.Module):
    def __init__(self, tasks=2):
        super().__init__()
        self.log_vars = nn.Parameter(torch.zeros(tasks))

    def forward(self, depth, kind, depth_target, kind_target):
        losses = torch.stack([F.mse_loss(depth, depth_target), F.cross_entropy(kind, kind_target)])
        return (torch.exp(-self.log_vars) * losses + self.log_vars).sum(), losses.detach()


def batch(n, weights):
    x = torch.randn(n, 16)
    return x, 20 * torch.sin(x[:, 0]) + x[:, 1], (x @ weights).argmax(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    weights = torch.randn(16, 4)
    model, criterion = MultiTask(), UncertaintyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for step in range(args.steps):
        x, depth, kind = batch(64, weights)
        loss, parts = criterion(*model(x), depth, kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, parts.tolist(), criterion.log_vars.tolist())


if __name__ == "__main__":
    main()
