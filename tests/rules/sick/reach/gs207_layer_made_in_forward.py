"""A layer is recreated in each forward: it stays random for ever."""

import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)

    def forward(self, x):
        h = self.body(x).relu()
        return nn.Linear(16, 3)(h)  # <-


torch.manual_seed(0)
model = Net()
batch = (torch.randn(16, 8), torch.arange(16) % 3)
loss_fn = functional.cross_entropy
