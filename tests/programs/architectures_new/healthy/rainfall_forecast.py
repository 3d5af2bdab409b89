"""Forecasts rainfall from station measurements with a temporal convolutional network."""

import torch
from torch import nn


class CausalBlock(nn.Module):
    def __init__(self, inputs, outputs, dilation):
        super().__init__()
        self.pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.conv = nn.utils.parametrizations.weight_norm(
            nn.Conv1d(inputs, outputs, 3, dilation=dilation)
        )
        self.skip = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x):
        return torch.relu(self.conv(self.pad(x)) + self.skip(x))


class Forecaster(nn.Module):
    def __init__(self, sensors=7, width=32):
        super().__init__()
        sizes = [sensors] + 5 * [width]
        self.body = nn.Sequential(
            *[CausalBlock(a, b, 2**i) for i, (a, b) in enumerate(zip(sizes, sizes[1:]))]
        )
        self.head = nn.Linear(width, 1)

    def forward(self, series):
        return self.head(self.body(series.transpose(1, 2))[:, :, -1]).squeeze(-1)


def build_model():
    torch.manual_seed(17)
    return Forecaster()


def build_batch():
    torch.manual_seed(18)
    series = torch.randn(24, 48, 7)
    return series, series[:, -6:, 0].mean(dim=1) + 0.5 * series[:, -1, 3]


def loss_fn(output, batch):
    error = output - batch[1]
    return torch.where(error.abs() < 1, 0.5 * error.square(), error.abs() - 0.5).mean()
