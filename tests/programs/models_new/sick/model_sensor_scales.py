"""Predict remaining life from sensor readings."""
import torch
import torch.nn as nn


class LifePredictor(nn.Module):
    def __init__(self, sensors=6):
        super().__init__()
        self.register_buffer("mean", torch.full((sensors,), 900.0))
        self.register_buffer("scale", torch.full((sensors,), 250.0))
        self.enc = nn.Linear(sensors, 32)
        self.mid = nn.Linear(32, 32)
        self.out = nn.Linear(32, 1)

    def forward(self, readings):
        h = torch.tanh(self.enc(readings))
        h = torch.tanh(self.mid(h))
        return self.out(h)


def build_model():
    torch.manual_seed(141)
    return LifePredictor()


def build_batch():
    g = torch.Generator().manual_seed(142)
    z = torch.randn(64, 6, generator=g)
    return 900 + 250 * z, z[:, :1] - 0.5 * z[:, 1:2]


def loss_fn(output, batch):
    return nn.functional.mse_loss(output, batch[1])
