"""Gradual unfreezing with discriminative learning rates."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self, dim=24, depth=3):
        super().__init__()
        self.embed = nn.EmbeddingBag(40, dim)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim)) for _ in range(depth))
        self.head = nn.Linear(dim, 2)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


class Thawing:
    def __init__(self, model, optimizer, lr, decay):
        self.waiting = [*model.layers, model.embed]
        self.waiting.sort(key=lambda module: module is model.embed)
        self.order = [*reversed(model.layers), model.embed]
        self.optimizer, self.lr, self.decay, self.done = optimizer, lr, decay, 0

    def epoch(self, index):
        if index == 0 or self.done == len(self.order):
            return
        module = self.order[self.done]
        self.done += 1
        module.requires_grad_(True)
        self.optimizer.add_param_group({"params": list(module.parameters()), "lr": self.lr * self.decay**self.done})


def texts(n):
    y = torch.randint(0, 2, (n,))
    ids = torch.randint(0, 40, (n, 12))
    ids[:, :3] = y[:, None] * 20 + torch.randint(0, 20, (n, 3))
    return ids, y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Encoder().requires_grad_(False)
    model.head.requires_grad_(True)
    optimizer = torch.optim.Adam(model.head.parameters(), lr=args.lr)
    thawing = Thawing(model, optimizer, args.lr, decay=0.7)
    for epoch in range(args.epochs):
        thawing.epoch(epoch)
        for _ in range(10):
            ids, y = texts(32)
            loss = F.cross_entropy(model(ids), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, len(optimizer.param_groups), loss.item())


if __name__ == "__main__":
    main()
