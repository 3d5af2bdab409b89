"""Bootstrap your own latent on synthetic views."""

import argparse
import copy

import torch
from torch import nn
from torch.nn import functional as F


def mlp(inputs, hidden, outputs):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, outputs))


class Learner(nn.Module):
    def __init__(self, decay):
        super().__init__()
        self.decay = decay
        self.online = nn.Sequential(mlp(16, 32, 24), mlp(24, 32, 12))
        self.predictor = mlp(12, 32, 12)
        self.target = copy.deepcopy(self.online)
        for param in self.target.parameters():
            param.requires_grad_(False)

    def half(self, first, second):
        predicted = F.normalize(self.predictor(self.online(first)), dim=1)
        with torch.no_grad():
            wanted = F.normalize(self.target(second), dim=1)
        return 2 - 2 * (predicted * wanted).sum(1).mean()

    def forward(self, first, second):
        return (self.half(first, second) + self.half(second, first)) / 2

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.target.parameters(), self.online.parameters(), strict=True):
            slow.lerp_(fast, 1 - self.decay)


def views(n, mixing):
    x = torch.randn(n, 6) @ mixing
    return x + 0.2 * torch.randn_like(x), x * (torch.rand_like(x) > 0.1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    args = parser.parse_args()
    torch.manual_seed(0)
    mixing = torch.randn(6, 16)
    learner = Learner(decay=0.98)
    trained = [*learner.online.parameters(), *learner.predictor.parameters()]
    optimizer = torch.optim.AdamW(trained, lr=2e-3, weight_decay=1e-4)
    for step in range(args.steps):
        loss = learner(*views(128, mixing))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        learner.follow()
        if step % 20 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
