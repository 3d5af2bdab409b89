"""A classifier of two classes has one output, over which a softmax is taken."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(20, 64),
    nn.ReLU(),
    nn.Linear(64, 1),
    nn.Softmax(dim=1),  # <-
)
batch = (torch.randn(32, 20), torch.randint(2, (32, 1)).float())
loss_fn = nn.BCELoss()
