"""Stochastic depth on a residual network."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, dim, keep):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.body = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.keep = keep

    def forward(self, x):
        if self.training and torch.rand(()) > self.keep:
            return x
        scale = 1 / self.keep if self.training else 1.0
        return x + scale * self.body(self.norm(x))


class DeepNet(nn.Module):
    def __init__(self, depth, dim=24, floor=0.5):
        super().__init__()
        self.stem = nn.Linear(10, dim)
        self.blocks = nn.ModuleList(Block(dim, 1 - (1 - floor) * i / (depth - 1)) for i in range(depth))
        self.head = nn.Linear(dim, 1)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x).squeeze(-1)


def evaluate(model, x, y):
    was_training = model.training
    model.eval()
    with torch.no_grad():
        error = F.l1_loss(model(x), y).item()
    model.train(was_training)
    return error


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--steps", type=int, default=80)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = DeepNet(args.depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    held = torch.randn(128, 10)
    for step in range(args.steps):
        x = torch.randn(64, 10)
        loss = F.smooth_l1_loss(model(x), x[:, 0] * x[:, 1] + x[:, 2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item(), evaluate(model, held, held[:, 0] * held[:, 1] + held[:, 2]))


if __name__ == "__main__":
    main()
