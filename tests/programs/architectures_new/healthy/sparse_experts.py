"""A top-2 mixture of experts with a load-balancing loss; experts without tokens are skipped."""

import torch
import torch.nn.functional as F
from torch import nn


class SparseExperts(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.router = nn.Linear(width, count, bias=False)
        self.up = nn.Parameter(torch.randn(count, width, 2 * width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(count, 2 * width, width) * (2 * width) ** -0.5)

    def forward(self, x):
        scores = self.router(x)
        probability = scores.softmax(dim=-1)
        weight, index = scores.topk(2, dim=-1)
        weight = weight.softmax(dim=-1)
        y = torch.zeros_like(x)
        for expert in index.unique().tolist():
            row, slot = torch.where(index == expert)
            part = F.gelu(x[row] @ self.up[expert]) @ self.down[expert]
            y = y.index_add(0, row, part * weight[row, slot].unsqueeze(1))
        load = F.one_hot(index, scores.shape[-1]).float().mean(dim=(0, 1))
        return y, (load * probability.mean(dim=0)).sum() * scores.shape[-1]


class ExpertNet(nn.Module):
    def __init__(self, features=20, width=48, depth=5, experts=12, classes=6):
        super().__init__()
        self.input = nn.Linear(features, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(depth)])
        self.layers = nn.ModuleList([SparseExperts(width, experts) for _ in range(depth)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, x):
        x, balance = self.input(x), 0.0
        for norm, layer in zip(self.norms, self.layers):
            y, extra = layer(norm(x))
            x, balance = x + y, balance + extra
        return self.head(x), balance


def build_model():
    torch.manual_seed(215)
    return ExpertNet()


def build_batch():
    torch.manual_seed(216)
    return torch.randn(24, 20), torch.randint(0, 6, (24,))


def loss_fn(output, batch):
    return F.cross_entropy(output[0], batch[1]) + 0.01 * output[1]
