import torch
import torch.nn as nn
import torch.nn.functional as F


class SimSiam(nn.Module):
    def __init__(self, d=16, p=24):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(d, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, p))
        self.predictor = nn.Sequential(nn.Linear(p, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, p))

    def forward(self, a, b):
        za, zb = self.encoder(a), self.encoder(b)
        return self.predictor(za), self.predictor(zb), za.detach(), zb.detach()


def build_model():
    torch.manual_seed(411)
    return SimSiam()


def build_batch():
    g = torch.Generator().manual_seed(412)
    x = torch.randn(64, 16, generator=g)
    return x + 0.3 * torch.randn(64, 16, generator=g), x + 0.3 * torch.randn(64, 16, generator=g)


def loss_fn(output, batch):
    pa, pb, za, zb = output
    return -(F.cosine_similarity(pa, zb).mean() + F.cosine_similarity(pb, za).mean()) / 2
