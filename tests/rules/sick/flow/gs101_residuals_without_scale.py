"""Residual blocks with nothing to normalise them: each doubles what it is given."""

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        for layer in (self.first, self.second):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")

    def forward(self, x):
        return x + 2 * self.second(self.first(x).relu())  # <-


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(8, 64), nn.Linear(64, 3)
        self.blocks = nn.ModuleList(Block(64) for _ in range(16))

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


torch.manual_seed(0)
model = Net()
batch = (torch.randn(32, 8), torch.arange(32) % 3)
loss_fn = functional.cross_entropy
