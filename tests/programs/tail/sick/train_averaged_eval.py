"""Evaluates a running mean of the weights now and then."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class Trainer:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(10, 40), nn.Tanh(), nn.Linear(40, 4))
        self.mean = copy.deepcopy(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.centres = torch.randn(4, 10)

    def batch(self):
        kinds = torch.randint(0, 4, (32,))
        return self.centres[kinds] + torch.randn(32, 10), kinds

    def step(self):
        x, kinds = self.batch()
        loss = F.cross_entropy(self.model(x), kinds)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(self.mean.parameters(), self.model.parameters()):
                slow.lerp_(fast, 0.1)

    def evaluate(self):
        self.model, self.mean = self.mean, self.model
        x, kinds = self.batch()
        with torch.no_grad():
            right = (self.model(x).argmax(1) == kinds).float().mean().item()
        return right


def main():
    torch.manual_seed(43)
    trainer = Trainer()
    for step in range(60):
        trainer.step()
        if step == 24:
            print(step, f"{trainer.evaluate():.3f}")


main()
