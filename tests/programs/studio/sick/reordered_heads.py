"""A key-point detector that turns heat maps into coordinates."""

import torch
from torch import nn
from torch.nn import functional as F


class Hourglass(nn.Module):
    def __init__(self, points, width=12):
        super().__init__()
        self.down = nn.Conv2d(1, width, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(width, width, 3, padding=1)
        self.up = nn.ConvTranspose2d(width, width, 2, stride=2)
        self.out = nn.Conv2d(width, points, 1)

    def forward(self, x):
        x = F.relu(self.down(x))
        x = F.relu(x + self.middle(x))
        return self.out(F.relu(self.up(x)))


def coordinates(maps):
    size = maps.shape[-1]
    best = maps.flatten(2).argmax(-1)
    rows, columns = torch.div(best, size, rounding_mode="floor"), best % size
    return torch.stack([rows, columns], -1) / (size - 1)


class KeypointNet(nn.Module):
    def __init__(self, points=3):
        super().__init__()
        self.hourglass = Hourglass(points)
        self.scale = nn.Parameter(torch.ones(points, 1))
        self.shift = nn.Parameter(torch.zeros(points, 2))

    def forward(self, x):
        return self.scale * coordinates(self.hourglass(x)) + self.shift


def build_model():
    torch.manual_seed(0)
    return KeypointNet()


def build_batch():
    torch.manual_seed(1)
    return torch.randn(8, 1, 16, 16), torch.rand(8, 3, 2)


def loss_fn(output, batch):
    return F.smooth_l1_loss(output, batch[1])
