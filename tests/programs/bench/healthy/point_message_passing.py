"""Message passing on nearest-neighbour graphs of points."""

import torch
from torch import nn
from torch.nn import functional as F


class EdgeConv(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(2 * d_in, d_out), nn.ReLU(), nn.Linear(d_out, d_out))

    def forward(self, x, neighbours):
        around = x[neighbours]
        own = x.unsqueeze(1).expand_as(around)
        return self.mlp(torch.cat([own, around - own], dim=-1)).max(dim=1).values


class PointNet(nn.Module):
    def __init__(self, d_in=3, dim=24, depth=3, classes=4):
        super().__init__()
        self.inp = nn.Linear(d_in, dim)
        self.convs = nn.ModuleList([EdgeConv(dim, dim) for _ in range(depth)])
        self.head = nn.Linear(dim, classes)

    def forward(self, points, neighbours):
        x = F.relu(self.inp(points))
        for conv in self.convs:
            x = x + conv(x, neighbours)
        return self.head(x)


def knn(points, k=5):
    distance = torch.cdist(points, points)
    return distance.topk(k + 1, largest=False).indices[:, 1:]


def build_model():
    torch.manual_seed(15)
    return PointNet()


def build_batch():
    g = torch.Generator().manual_seed(16)
    centers = torch.randn(4, 3, generator=g)
    labels = torch.arange(4).repeat(16)
    points = centers[labels] + 0.3 * torch.randn(64, 3, generator=g)
    return {"points": points, "neighbours": knn(points), "labels": labels}


def compute_loss(model, batch):
    return F.cross_entropy(model(batch["points"], batch["neighbours"]), batch["labels"])
