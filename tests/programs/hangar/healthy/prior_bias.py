import math
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Options:
    features: int = 16
    width: int = 48
    depth: int = 2
    prior: float = 0.01
    learning_rate: float = 2e-3
    steps: int = 80


class FraudDetector(nn.Module):
    def __init__(self, options):
        super().__init__()
        sizes = [options.features] + [options.width] * options.depth
        self.hidden = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])])
        self.output = nn.Linear(options.width, 1)
        self.init_prior(options.prior)

    def init_prior(self, prior):
        bias = -math.log((1 - prior) / prior)
        for layer in [self.output]:
            nn.init.constant_(layer.bias, bias)

    def forward(self, rows):
        for layer in self.hidden:
            rows = F.relu(layer(rows))
        return self.output(rows).squeeze(-1)


def transactions(count, features, generator):
    rows = torch.randn(count, features, generator=generator)
    odd = (rows[:, 0] * rows[:, 1] > 1.2) | (rows[:, 2] > 2.2)
    return rows, odd.float()


def train(options):
    torch.manual_seed(30)
    generator = torch.Generator().manual_seed(31)
    model = FraudDetector(options)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    weight = torch.tensor(5.0)
    for step in range(1, options.steps + 1):
        rows, label = transactions(256, options.features, generator)
        loss = F.binary_cross_entropy_with_logits(model(rows), label, pos_weight=weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step:4d} {loss.item():.4f}")


if __name__ == "__main__":
    train(Options())
