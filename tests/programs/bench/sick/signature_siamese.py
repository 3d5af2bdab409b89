"""Siamese network for signatures with the contrastive loss of Hadsell et al."""

import torch
from torch import nn
from torch.nn import functional as F


class SiameseNetwork(nn.Module):
    def __init__(self, emb=12):
        super().__init__()
        self.cnn = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        )
        self.fc = nn.Linear(12 * 4 * 4, emb)

    def embed(self, x):
        return self.fc(self.cnn(x).flatten(1))

    def forward(self, batch):
        return self.embed(batch["first"]), self.embed(batch["second"])


def euclidean(a, b, eps=1e-12):
    return (a - b).pow(2).sum(dim=1).sqrt()


class ContrastiveLoss(nn.Module):
    def __init__(self, margin=1.0):
        super().__init__()
        self.margin = margin

    def forward(self, a, b, different):
        distance = euclidean(a, b)
        same_loss = (1 - different) * distance.pow(2)
        different_loss = different * F.relu(self.margin - distance).pow(2)
        return (same_loss + different_loss).mean()


def build_model():
    torch.manual_seed(7)
    return SiameseNetwork()


def build_batch():
    """Pairs of signatures; a writer's reference may be paired with itself."""
    g = torch.Generator().manual_seed(8)
    first = torch.randn(10, 1, 16, 16, generator=g)
    second = first + 0.1 * torch.randn(10, 1, 16, 16, generator=g)
    second[5:] = torch.randn(5, 1, 16, 16, generator=g)
    second[0] = first[0]
    different = torch.tensor([0.0] * 5 + [1.0] * 5)
    return {"first": first, "second": second, "different": different}


def compute_loss(model, batch):
    a, b = model(batch)
    return ContrastiveLoss()(a, b, batch["different"])
