"""Multiple-instance classification of slides by gated attention pooling."""

import torch
from torch import nn
from torch.nn import functional as F


class GatedAttention(nn.Module):
    def __init__(self, dim, hidden=16):
        super().__init__()
        self.v = nn.Linear(dim, hidden)
        self.u = nn.Linear(dim, hidden)
        self.w = nn.Linear(hidden, 1)

    def forward(self, h):
        scores = self.w(torch.tanh(self.v(h)) * torch.sigmoid(self.u(h)))
        return F.softmax(scores, dim=1)


class ABMIL(nn.Module):
    def __init__(self, d_in=20, dim=32, classes=3):
        super().__init__()
        self.project = nn.Sequential(nn.Linear(d_in, dim), nn.ReLU())
        self.attention = GatedAttention(dim)
        self.classifier = nn.Linear(dim, classes)

    def forward(self, bags):
        h = self.project(bags)
        weights = self.attention(h)
        return self.classifier((weights * h).sum(dim=1))


def build_model():
    torch.manual_seed(13)
    return ABMIL()


def build_batch():
    g = torch.Generator().manual_seed(14)
    labels = torch.randint(3, (8,), generator=g)
    bags = torch.randn(8, 15, 20, generator=g)
    bags[torch.arange(8), 3, labels] += 4.0
    return bags, labels


def compute_loss(model, batch):
    bags, labels = batch
    return F.cross_entropy(model(bags), labels)
