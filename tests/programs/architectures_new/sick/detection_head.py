"""A one-stage detector: a small backbone, a feature pyramid, and a dense head."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Backbone(nn.Module):
    def __init__(self, widths=(16, 32, 48, 64)):
        super().__init__()
        sizes = (3, *widths)
        self.stages = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(a, b, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(b),
                nn.ReLU(),
                nn.Conv2d(b, b, 3, padding=1, bias=False),
                nn.BatchNorm2d(b),
                nn.ReLU(),
            )
            for a, b in zip(sizes, sizes[1:])
        )

    def forward(self, x):
        levels = []
        for stage in self.stages:
            x = stage(x)
            levels.append(x)
        return levels[1:]


class Pyramid(nn.Module):
    def __init__(self, widths=(32, 48, 64), width=32):
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(w, width, 1) for w in widths)
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in widths)

    def forward(self, levels):
        x, outputs = 0, []
        for level, lateral, smooth in zip(levels[::-1], self.lateral[::-1], self.smooth[::-1]):
            side = lateral(level)
            x = side + (F.interpolate(x, size=side.shape[2:]) if outputs else 0)
            outputs.append(smooth(x))
        return outputs[::-1]


class Head(nn.Module):
    def __init__(self, width=32, classes=8, prior=0.01):
        super().__init__()
        layers = []
        for _ in range(4):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
        self.tower = nn.Sequential(*layers)
        self.score = nn.Conv2d(width, classes, 3, padding=1)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.normal_(layer.weight, std=0.05)
                nn.init.constant_(layer.bias, -math.log((1 - prior) / prior))

    def forward(self, levels):
        return [self.score(self.tower(level)) for level in levels]


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.pyramid = Pyramid()
        self.head = Head()

    def forward(self, images):
        levels = self.head(self.pyramid(self.backbone(images)))
        return torch.cat([level.flatten(2) for level in levels], dim=2)


def build_model():
    torch.manual_seed(35)
    return Detector()


def build_batch():
    torch.manual_seed(36)
    return torch.randn(4, 3, 64, 64), (torch.rand(4, 8, 336) < 0.02).float()


def loss_fn(output, batch):
    cross_entropy = F.binary_cross_entropy_with_logits(output, batch[1], reduction="none")
    correct = torch.where(batch[1] > 0, output.sigmoid(), 1 - output.sigmoid())
    return ((1 - correct).square() * cross_entropy).sum() / batch[1].sum().clamp(min=1)
