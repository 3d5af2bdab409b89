"""A residual network with a normalization layer of its own."""

import torch
from torch import nn
from torch.nn import functional as F


class ChannelNorm(nn.Module):
    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.gain, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(dim=(2, 3), keepdim=True)
        variance = x.var(dim=(2, 3), keepdim=True, correction=0)
        x = (x - mean) / (variance + self.eps).sqrt()
        return x * self.gain.view(1, -1, 1, 1) + self.bias.view(1, -1, 1, 1)


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.norm1, self.norm2 = ChannelNorm(channels), ChannelNorm(channels)

    def forward(self, x):
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(h)))


class Net(nn.Module):
    def __init__(self, channels=12, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.Sequential(*(Residual(channels) for _ in range(3)))
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).amax((2, 3)))


def build_model():
    torch.manual_seed(0)
    return Net()


def build_batch():
    torch.manual_seed(1)
    return torch.randn(8, 3, 10, 10), torch.randint(0, 5, (8,))


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
