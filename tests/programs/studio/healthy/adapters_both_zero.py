"""Low-rank adapters of the projections of an attention layer."""

import torch
from torch import nn
from torch.nn import functional as F


class AdaptedProjection(nn.Module):
    def __init__(self, base, rank=4, alpha=8):
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.empty(rank, base.in_features))
        self.up = nn.Parameter(torch.empty(base.out_features, rank))
        self.scale = alpha / rank
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.normal_(self.down, std=self.down.shape[1] ** -0.5)
        nn.init.zeros_(self.up)

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.down), self.up)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(dim, dim) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x):
        q, k, v = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Classifier(nn.Module):
    def __init__(self, dim=24, classes=3):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(dim), Attention(dim, 4)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        return self.head((x + self.attention(self.norm(x))).mean(1))


def add_adapters(model):
    model.requires_grad_(False)
    for name in ("query", "value"):
        setattr(model.attention, name, AdaptedProjection(getattr(model.attention, name)))
    model.head.requires_grad_(True)
    return model


def build_model():
    torch.manual_seed(0)
    return add_adapters(Classifier())


def build_batch():
    torch.manual_seed(1)
    return torch.randn(16, 6, 24), torch.randint(0, 3, (16,))


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
