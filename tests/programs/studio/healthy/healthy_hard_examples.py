"""Online hard-example mining for a small classifier."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class HardestLoss(nn.Module):
    def __init__(self, share, warmup):
        super().__init__()
        self.share, self.warmup, self.calls = share, warmup, 0

    def forward(self, logits, labels):
        losses = F.cross_entropy(logits, labels, reduction="none")
        self.calls += 1
        if self.calls <= self.warmup:
            return losses.mean()
        keep = max(1, int(self.share * len(losses)))
        return losses.topk(keep).values.mean()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        )
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.layers(x).flatten(1))


def quadrants(n, size=12):
    y = torch.randint(0, 4, (n,))
    x = 0.7 * torch.randn(n, 1, size, size)
    wave = torch.sin(torch.arange(size) * 0.9)
    grid = torch.stack([wave.expand(size, size), wave[:, None].expand(size, size), wave * wave[:, None], -wave.abs().expand(size, size)])
    return x + grid[y, None], y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--share", type=float, default=0.3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model, criterion = Net(), HardestLoss(args.share, warmup=10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for step in range(args.steps):
        x, y = quadrants(48)
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
