"""Fits a signed distance function with sine layers."""

import torch
from torch import nn


class Sine(nn.Module):
    def __init__(self, inputs, outputs, frequency=30.0, first=False):
        super().__init__()
        self.frequency = frequency
        self.linear = nn.Linear(inputs, outputs)
        with torch.no_grad():
            bound = 1 / inputs if first else (6 / inputs) ** 0.5
            self.linear.weight.uniform_(-bound, bound)

    def forward(self, x):
        return torch.sin(self.frequency * self.linear(x))


class DistanceField(nn.Module):
    def __init__(self, width=128, depth=5):
        super().__init__()
        self.layers = nn.Sequential(
            Sine(3, width, first=True), *[Sine(width, width) for _ in range(depth)]
        )
        self.output = nn.Linear(width, 1)
        nn.init.uniform_(self.output.weight, -0.02, 0.02)

    def forward(self, points):
        return self.output(self.layers(points)).squeeze(-1)


def build_model():
    torch.manual_seed(103)
    return DistanceField()


def build_batch():
    torch.manual_seed(104)
    points = torch.rand(512, 3) * 2 - 1
    return points, points.norm(dim=1) - 0.5


def loss_fn(output, batch):
    return (output - batch[1]).abs().mean()
