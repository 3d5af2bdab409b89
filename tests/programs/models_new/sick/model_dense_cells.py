import torch
import torch.nn as nn


class DenseRegressor(nn.Module):
    def __init__(self, cells=1024):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.out = nn.Linear(64, cells)

    def forward(self, x):
        return self.out(self.body(x)) * 0.03


def build_model():
    torch.manual_seed(311)
    return DenseRegressor().half()


def build_batch():
    g = torch.Generator().manual_seed(312)
    x = torch.randn(64, 32, generator=g)
    target = 0.03 * torch.sin(x[:, :1] * torch.linspace(0, 3, 1024))
    return x.half(), target.half()


def loss_fn(output, batch):
    return (output - batch[1]).square().mean()
