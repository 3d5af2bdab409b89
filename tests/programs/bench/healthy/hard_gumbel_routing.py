"""A layer whose tokens choose an operation by a hard Gumbel softmax."""

import torch
from torch import nn
from torch.nn import functional as F


class RoutedLayer(nn.Module):
    def __init__(self, dim=24, choices=3):
        super().__init__()
        self.router = nn.Linear(dim, choices)
        self.branches = nn.ModuleList(nn.Sequential(nn.Linear(dim, dim), nn.GELU()) for _ in range(choices))
        self.register_buffer("load", torch.zeros(choices))

    def forward(self, x):
        logits = self.router(x)
        choice = F.gumbel_softmax(logits, tau=1.0, hard=True)
        with torch.no_grad():
            self.load.lerp_(choice.mean(dim=(0, 1)), 0.1)
        out = sum(choice[..., i : i + 1] * branch(x) for i, branch in enumerate(self.branches))
        fraction = choice.detach().mean(dim=(0, 1))
        balance = (fraction * logits.softmax(-1).mean(dim=(0, 1))).sum() * len(self.branches)
        return x + out, balance


class Classifier(nn.Module):
    def __init__(self, d_in=10, dim=24, classes=4):
        super().__init__()
        self.inp = nn.Linear(d_in, dim)
        self.layers = nn.ModuleList(RoutedLayer(dim) for _ in range(2))
        self.out = nn.Linear(dim, classes)

    def forward(self, x):
        h, balance = self.inp(x), 0.0
        for layer in self.layers:
            h, extra = layer(h)
            balance = balance + extra
        return self.out(h.mean(dim=1)), balance


def build_model():
    torch.manual_seed(13)
    return Classifier()


def build_batch():
    g = torch.Generator().manual_seed(14)
    return torch.randn(16, 12, 10, generator=g), torch.randint(4, (16,), generator=g)


def compute_loss(model, batch):
    logits, balance = model(batch[0])
    return F.cross_entropy(logits, batch[1]) + 0.01 * balance
