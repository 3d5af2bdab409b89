"""A tiny vision transformer with low-rank side branches in the attention, initialised through apply()."""

import torch
import torch.nn.functional as F
from torch import nn


class LowRank(nn.Module):
    def __init__(self, width, rank, scale=2.0):
        super().__init__()
        self.reduce = nn.Linear(width, rank, bias=False)
        self.expand = nn.Linear(rank, width, bias=False)
        self.scale = scale

    def forward(self, x):
        return self.expand(self.reduce(x)) * self.scale


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.value_branch = LowRank(width, 4)

    def forward(self, x):
        query, key, value = self.qkv(x).chunk(3, dim=-1)
        value = value + self.value_branch(x)
        split = [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (query, key, value)]
        mixed = F.scaled_dot_product_attention(*split)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Encoder(nn.Module):
    def __init__(self, width=32, depth=3, classes=5):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.position = nn.Parameter(torch.randn(1, 16, width) * 0.02)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.attention = nn.ModuleList(Attention(width, 4) for _ in range(depth))
        self.classify = nn.Linear(width, classes)
        self.apply(self._initialise)

    @staticmethod
    def _initialise(module):
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.05)
        elif isinstance(module, LowRank):
            for factor in (module.reduce, module.expand):
                nn.init.zeros_(factor.weight)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.position
        for norm, attention in zip(self.norms, self.attention):
            x = x + attention(norm(x))
        return self.classify(x.mean(1))


def build_model():
    torch.manual_seed(0)
    return Encoder()


def build_batch():
    torch.manual_seed(1)
    return torch.randn(8, 3, 16, 16), torch.randint(0, 5, (8,))


def loss_fn(output, target):
    return F.cross_entropy(output, target)
