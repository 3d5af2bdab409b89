"""SimSiam: two views, a predictor and a stop-gradient."""

import torch
from torch import nn
from torch.nn import functional as F


class SimSiam(nn.Module):
    def __init__(self, d_in=24, dim=32, pred=8):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(d_in, dim), nn.BatchNorm1d(dim), nn.ReLU(), nn.Linear(dim, dim),
            nn.BatchNorm1d(dim, affine=False),
        )
        self.predictor = nn.Sequential(nn.Linear(dim, pred), nn.BatchNorm1d(pred), nn.ReLU(), nn.Linear(pred, dim))

    def forward(self, views):
        z1, z2 = self.encoder(views[0]), self.encoder(views[1])
        return self.predictor(z1), self.predictor(z2), z1.detach(), z2.detach()


def compute_loss(model, views):
    p1, p2, z1, z2 = model(views)
    return -(F.cosine_similarity(p1, z2).mean() + F.cosine_similarity(p2, z1).mean()) / 2


def build_model():
    torch.manual_seed(3)
    return SimSiam()


def build_batch():
    g = torch.Generator().manual_seed(4)
    base = torch.randn(32, 24, generator=g)
    return base + 0.2 * torch.randn(32, 24, generator=g), base + 0.2 * torch.randn(32, 24, generator=g)
