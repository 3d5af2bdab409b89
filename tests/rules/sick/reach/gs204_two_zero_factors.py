"""Both factors of a low-rank branch begin at zero: neither ever gets a gradient."""

import torch
from torch import nn
from torch.nn import functional


class Adapter(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.zeros(2, 12))  # <-
        self.up = nn.Parameter(torch.zeros(12, 2))  # <-

    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T


torch.manual_seed(0)
model = nn.Sequential(Adapter(nn.Linear(12, 12)), nn.ReLU(), nn.Linear(12, 3))
batch = (torch.randn(16, 12), torch.arange(16) % 3)
loss_fn = functional.cross_entropy
