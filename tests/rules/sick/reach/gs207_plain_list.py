"""The blocks of a network are kept in a list, which no `parameters()` looks into."""

import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(8, 16), nn.Linear(16, 3)
        self.blocks = []  # <-
        for _ in range(3):
            self.blocks.append(nn.Linear(16, 16))  # <-

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = x + block(x).relu()  # <-
        return self.head(x)


torch.manual_seed(0)
model = Net()
batch = (torch.randn(16, 8), torch.arange(16) % 3)
loss_fn = functional.cross_entropy
