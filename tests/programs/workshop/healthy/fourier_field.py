import torch
import torch.nn as nn


class FourierFeatures(nn.Module):
    def __init__(self, d_in, n, scale=3.0):
        super().__init__()
        self.register_buffer("B", torch.randn(d_in, n) * scale)

    def forward(self, x):
        p = 2 * torch.pi * x @ self.B
        return torch.cat([p.sin(), p.cos()], -1)


class NeuralField(nn.Module):
    def __init__(self, n=24, hidden=48):
        super().__init__()
        self.ff = FourierFeatures(2, n)
        self.net = nn.Sequential(nn.Linear(2 * n, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.rgb = nn.Linear(hidden, 3)
        nn.init.zeros_(self.rgb.weight)
        nn.init.zeros_(self.rgb.bias)

    def forward(self, xy):
        return torch.sigmoid(self.rgb(self.net(self.ff(xy))))


def build_model():
    torch.manual_seed(0)
    return NeuralField()


def build_batch():
    torch.manual_seed(1)
    xy = torch.rand(256, 2)
    return xy, torch.stack([xy[:, 0], xy[:, 1], xy.prod(1)], 1)


def loss_fn(output, batch):
    return nn.functional.mse_loss(output, batch[1])
