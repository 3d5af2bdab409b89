"""A learned temperature is a plain tensor: it gets a gradient and is no parameter."""

import torch
from torch import nn
from torch.nn import functional


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 5)
        self.temperature = torch.ones(1, requires_grad=True)  # <-

    def forward(self, x):
        return self.linear(x) / self.temperature


torch.manual_seed(0)
model = Head()
batch = (torch.randn(16, 8), torch.arange(16) % 5)
loss_fn = functional.cross_entropy
