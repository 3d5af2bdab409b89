"""An embedding with a batch-hard triplet loss on all pairwise distances."""

import torch
import torch.nn.functional as F
from torch import nn


class Embedder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.project = nn.Linear(32, dim)

    def forward(self, images):
        return F.normalize(self.project(self.features(images)), dim=-1)


def pairwise(embeddings):
    squares = (embeddings[:, None] - embeddings[None]).square().sum(-1)
    itself = torch.eye(len(embeddings), dtype=torch.bool)
    distances = squares.sqrt()
    return torch.where(itself, torch.zeros_like(distances), distances)


def build_model():
    torch.manual_seed(0)
    return Embedder()


def build_batch():
    torch.manual_seed(1)
    return torch.randn(24, 3, 16, 16), torch.arange(24) % 6


def loss_fn(output, target):
    labels = target
    distances = pairwise(output)
    same = labels[:, None] == labels[None]
    farthest = distances.masked_fill(~same, 0).amax(1)
    nearest = distances.masked_fill(same, float("inf")).amin(1)
    return F.softplus(farthest - nearest).mean()
