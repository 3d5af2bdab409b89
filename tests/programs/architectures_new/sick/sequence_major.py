"""Classifies gestures from accelerometer windows with a recurrent network."""

import torch
import torch.nn.functional as F
from torch import nn


class GestureNet(nn.Module):
    def __init__(self, channels=6, width=24, steps=20, classes=8):
        super().__init__()
        self.input = nn.Linear(channels, width)
        self.rnn = nn.GRU(width, width, num_layers=2)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Sequential(nn.Linear(width * steps, 64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, window):
        x = self.input(window).transpose(0, 1)
        states, _ = self.rnn(x)
        states = self.norm(states)
        return self.head(states.view(len(window), -1))


def build_model():
    torch.manual_seed(99)
    return GestureNet()


def build_batch():
    torch.manual_seed(100)
    return torch.randn(16, 20, 6), torch.randint(0, 8, (16,))


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
