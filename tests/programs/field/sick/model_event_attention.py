import math

import torch
import torch.nn.functional as F
from torch import nn


class MaskedAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = (
            part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(mask, float("-inf"))
        weights = scores.softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, d))


def history_mask(length):
    return torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=0)


class EventModel(nn.Module):
    def __init__(self, kinds=12, dim=32):
        super().__init__()
        self.kind = nn.Embedding(kinds, dim)
        self.time = nn.Linear(1, dim)
        self.attention = MaskedAttention(dim, 4)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, kinds)

    def forward(self, kinds, times):
        x = self.kind(kinds) + self.time(times.unsqueeze(-1))
        h = x + self.attention(self.norm(x), history_mask(x.shape[1]))
        return self.head(h[:, 1:])


def build_model():
    torch.manual_seed(28)
    return EventModel()


def build_batch():
    g = torch.Generator().manual_seed(29)
    kinds = torch.randint(0, 12, (8, 16), generator=g)
    times = torch.rand(8, 16, generator=g).cumsum(1)
    return {"kinds": kinds, "times": times}


def compute_loss(model, batch):
    logits = model(batch["kinds"], batch["times"])
    return F.cross_entropy(logits.flatten(0, 1), batch["kinds"].roll(-1, 1)[:, 1:].flatten())
