"""Projected-gradient adversarial training."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


def attack(model, x, y, radius, rate, steps):
    moved = x + radius * (2 * torch.rand_like(x) - 1)
    for _ in range(steps):
        moved.requires_grad_(True)
        loss = F.cross_entropy(model(moved), y)
        (grad,) = torch.autograd.grad(loss, moved)
        moved = moved.detach() + rate * grad.sign()
        moved = x + (moved - x).clamp(-radius, radius)
    return moved.detach()


class Trainer:
    def __init__(self, args):
        self.args = args
        self.model = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [4, 6])
        self.centres = 1.5 * torch.randn(3, 8)

    def batch(self):
        y = torch.randint(0, 3, (64,))
        return self.centres[y] + torch.randn(64, 8), y

    def epoch(self):
        for _ in range(8):
            x, y = self.batch()
            self.model.eval()
            hard = attack(self.model, x, y, self.args.radius, self.args.radius / 3, self.args.attack_steps)
            self.model.train()
            loss = F.cross_entropy(self.model(hard), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.scheduler.step()
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--radius", type=float, default=0.3)
    parser.add_argument("--attack-steps", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    trainer = Trainer(args)
    for epoch in range(args.epochs):
        print(epoch, trainer.epoch())


if __name__ == "__main__":
    main()
