"""The root in a distance has no derivative where two points are equal, as on the diagonal."""

import torch
from torch import nn


def loss_fn(output, _):
    gaps = output[:, None] - output[None]
    distances = gaps.pow(2).sum(-1).sqrt()  # <-
    return (distances - 1).pow(2).mean()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 2))
batch = (torch.randn(12, 6), torch.zeros(12))
