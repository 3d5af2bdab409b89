"""Classifies environmental sounds from log-mel spectrograms with a VGG-like network."""

import torch
import torch.nn.functional as F
from torch import nn


def stage(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.AvgPool2d(2),
    )


class SoundNet(nn.Module):
    def __init__(self, classes=12):
        super().__init__()
        self.norm = nn.BatchNorm2d(1)
        self.stages = nn.Sequential(stage(1, 16), stage(16, 32), stage(32, 64))
        self.hidden = nn.Linear(64, 64)
        self.head = nn.Linear(64, classes)
        self.log_softmax = nn.LogSoftmax(dim=1)

    def forward(self, mel):
        x = self.stages(self.norm(mel))
        x = x.mean(dim=3)
        x = x.amax(dim=2) + x.mean(dim=2)
        x = F.relu(self.hidden(x))
        return self.log_softmax(self.head(x))


def build_model():
    torch.manual_seed(13)
    return SoundNet()


def build_batch():
    torch.manual_seed(14)
    return torch.randn(16, 1, 32, 64), torch.randint(0, 12, (16,))


def loss_fn(output, batch):
    return F.nll_loss(output, batch[1])
