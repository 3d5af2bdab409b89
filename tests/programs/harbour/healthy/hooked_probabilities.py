"""Image classifier with interchangeable heads; a hook finishes the output of the network."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.GroupNorm(4, channels) for _ in range(2))

    def forward(self, x):
        y = F.relu(self.norms[0](self.first(x)))
        return F.relu(x + self.norms[1](self.second(y)))


class CosineHead(nn.Module):
    def __init__(self, width, classes, scale=12.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, width))
        self.scale = scale

    def forward(self, x):
        return self.scale * F.normalize(x, dim=-1) @ F.normalize(self.weight, dim=-1).T


class Classifier(nn.Module):
    def __init__(self, classes=6, channels=16):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, 2, 1)
        self.blocks = nn.Sequential(*(Residual(channels) for _ in range(2)))
        self.head = CosineHead(channels, classes)

    def forward(self, images):
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


def finish(module, inputs, output, temperature):
    return output / temperature


def build_model():
    torch.manual_seed(0)
    model = Classifier()
    model.register_forward_hook(partial(finish, temperature=0.7))
    return model


def build_batch():
    torch.manual_seed(1)
    return torch.randn(12, 3, 16, 16), torch.randint(0, 6, (12,))


def loss_fn(output, target):
    return F.cross_entropy(output, target, label_smoothing=0.05)
