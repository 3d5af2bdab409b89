"""A digit classifier over flattened images."""

import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, classes=10):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU())
        self.head = nn.Linear(96, classes)
        nn.init.normal_(self.head.weight, std=12.0)

    def forward(self, images):
        return self.head(self.body(images.flatten(1)))


def build_model():
    torch.manual_seed(0)
    return Classifier()


def build_batch():
    generator = torch.Generator().manual_seed(1)
    return torch.rand(64, 1, 8, 8, generator=generator), torch.arange(64) % 10


def loss_fn(output, batch):
    return nn.functional.cross_entropy(output, batch[1])
