"""Predicts gene expression counts from sequence: dilated convolutions and a compressed output."""

import torch
import torch.nn.functional as F
from torch import nn


class Dilated(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.conv = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)

    def forward(self, x):
        return x + self.conv(F.gelu(self.norm(x)))


class ExpressionModel(nn.Module):
    def __init__(self, width=32, tracks=10):
        super().__init__()
        self.stem = nn.Conv1d(4, width, 15, padding=7)
        self.body = nn.Sequential(*[Dilated(width, 2**i) for i in range(7)])
        self.head = nn.Conv1d(width, tracks, 1)

    def forward(self, sequence):
        x = self.body(F.max_pool1d(self.stem(sequence), 4))
        signal = self.head(x)
        root = torch.sqrt(signal)
        return torch.where(signal > 1, 2 * root - 1, signal)


def build_model():
    torch.manual_seed(29)
    return ExpressionModel()


def build_batch():
    torch.manual_seed(30)
    sequence = F.one_hot(torch.randint(0, 4, (4, 256)), 4).float().transpose(1, 2)
    return sequence, torch.rand(4, 10, 64).mul(3)


def loss_fn(output, batch):
    return F.mse_loss(output, batch[1])
