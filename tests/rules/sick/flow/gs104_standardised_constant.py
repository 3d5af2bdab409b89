"""A feature that never changes is divided by its standard deviation, which is zero."""

import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        x = (x - x.mean(0)) / x.std(0)  # <-
        return self.net(x)


torch.manual_seed(0)
model = Net()
x = torch.randn(32, 4)
x[:, 2] = 3
batch = (x, torch.randn(32, 1))
loss_fn = functional.mse_loss
