"""Demand model that compresses its hidden activity with a one-sided square root."""
import torch
import torch.nn.functional as F
from torch import nn


class RootUnit(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        positive = x > 0
        root = torch.where(positive, torch.sqrt(x), torch.zeros_like(x))
        return self.gain * root


class CrossLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x0, x):
        return x0 * self.linear(x) + x


class DemandNet(nn.Module):
    def __init__(self, stores=7, items=11, dim=6, numbers=4, width=32):
        super().__init__()
        self.store, self.item = nn.Embedding(stores, dim), nn.Embedding(items, dim)
        joined = 2 * dim + numbers
        self.cross = nn.ModuleList(CrossLayer(joined) for _ in range(2))
        self.deep = nn.Sequential(nn.Linear(joined, width), RootUnit(width), nn.Linear(width, 16))
        self.rate, self.zero = nn.Linear(joined + 16, 1), nn.Linear(joined + 16, 1)

    def forward(self, batch):
        store, item, numbers, _ = batch
        x0 = torch.cat([self.store(store), self.item(item), numbers], 1)
        x = x0
        for layer in self.cross:
            x = layer(x0, x)
        h = torch.cat([x, self.deep(x0)], 1)
        return self.rate(h).squeeze(1), self.zero(h).squeeze(1)


def build_model():
    torch.manual_seed(213)
    return DemandNet()


def build_batch():
    g = torch.Generator().manual_seed(214)
    n = 48
    count = torch.poisson(torch.full((n,), 2.0), generator=g) * (torch.rand(n, generator=g) < 0.7)
    return (
        torch.randint(0, 7, (n,), generator=g),
        torch.randint(0, 11, (n,), generator=g),
        torch.randn(n, 4, generator=g),
        count,
    )


def loss_fn(output, batch):
    rate, zero = output
    count = batch[3]
    log_poisson = -F.poisson_nll_loss(rate, count, reduction="none", full=True)
    nothing = torch.logaddexp(F.logsigmoid(zero), F.logsigmoid(-zero) - rate.exp())
    return -torch.where(count == 0, nothing, F.logsigmoid(-zero) + log_poisson).mean()
