"""Padded rows are exactly zero, where the square root of the magnitude has no derivative."""

import torch
from torch import nn
from torch.nn import functional


class Pooling(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(6, 12, bias=False)
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        h = self.project(x)
        h = h.sign() * torch.sqrt(h.abs())  # <-
        return self.head(h.mean(1))


torch.manual_seed(0)
model = Pooling()
x = torch.randn(8, 5, 6)
x[:, 3:] = 0
batch = (x, torch.arange(8) % 3)
loss_fn = functional.cross_entropy
