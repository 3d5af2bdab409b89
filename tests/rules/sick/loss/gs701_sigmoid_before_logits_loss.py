"""Probabilities are given to a loss that wants logits."""

import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        return torch.sigmoid(self.net(x)).squeeze(1)  # <-


def loss_fn(output, target):
    return functional.binary_cross_entropy_with_logits(output, target)  # <-


torch.manual_seed(0)
model = Net()
batch = (torch.randn(32, 8), (torch.rand(32) < 0.5).float())
