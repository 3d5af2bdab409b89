"""A recurrent loop by hand whose weights are drawn with a standard deviation of one."""

import torch
from torch import nn
from torch.nn import functional


class Elman(nn.Module):
    def __init__(self):
        super().__init__()
        self.inputs = nn.Linear(4, 32)
        self.weight = nn.Parameter(torch.randn(32, 32))
        self.head = nn.Linear(32, 1)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 32)
        for t in range(x.shape[1]):
            h = torch.relu(self.inputs(x[:, t]) + h @ self.weight)  # <-
        return self.head(h)


torch.manual_seed(0)
model = Elman()
batch = (torch.randn(16, 20, 4), torch.randn(16, 1))
loss_fn = functional.mse_loss
