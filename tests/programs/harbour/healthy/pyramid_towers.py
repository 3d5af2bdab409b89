"""A small anchor-free detector: three pyramid levels, a tower of class and box heads for each."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Tower:
    stride: int
    scores: nn.Module
    boxes: nn.Module

    def __call__(self, feature):
        return self.scores(feature), self.boxes(feature).exp() * self.stride


class Backbone(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.stages = nn.ModuleList()
        before = 3
        for _ in range(3):
            self.stages.append(nn.Sequential(nn.Conv2d(before, channels, 3, 2, 1), nn.GroupNorm(4, channels), nn.SiLU()))
            before = channels

    def forward(self, x):
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features


class Detector(nn.Module):
    def __init__(self, channels=16, classes=3):
        super().__init__()
        self.backbone = Backbone(channels)
        self.towers = [self._tower(2 ** (level + 1), channels, classes) for level in range(3)]

    def _tower(self, stride, channels, classes):
        scores = nn.Conv2d(channels, classes, 1)
        boxes = nn.Conv2d(channels, 4, 1)
        self.add_module(f"tower{stride}", nn.ModuleList([scores, boxes]))
        return Tower(stride, scores, boxes)

    def forward(self, images):
        scores, boxes = [], []
        for tower, feature in zip(self.towers, self.backbone(images)):
            score, box = tower(feature)
            scores.append(score.flatten(2))
            boxes.append(box.flatten(2))
        return torch.cat(scores, 2), torch.cat(boxes, 2)


def build_model():
    torch.manual_seed(0)
    return Detector()


def build_batch():
    torch.manual_seed(1)
    cells = 16 * 16 + 8 * 8 + 4 * 4
    labels = (torch.rand(4, 3, cells) < 0.05).float()
    return torch.randn(4, 3, 32, 32), (labels, torch.rand(4, 4, cells) * 8)


def loss_fn(output, target):
    scores, boxes = output
    labels, sizes = target
    positive = labels.amax(1, keepdim=True)
    box_loss = (F.smooth_l1_loss(boxes, sizes, reduction="none") * positive).sum() / positive.sum().clamp(min=1)
    return F.binary_cross_entropy_with_logits(scores, labels) + 0.1 * box_loss
