"""A tanh network whose weights are drawn far too small for its depth."""

import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(12))
        self.head = nn.Linear(32, 3)
        for layer in self.layers:
            nn.init.normal_(layer.weight, std=0.02)  # <-

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x))  # <-
        return self.head(x)


torch.manual_seed(0)
model = Net()
batch = (torch.randn(32, 32), torch.arange(32) % 3)
loss_fn = functional.cross_entropy
