import torch
import torch.nn.functional as F
from torch import nn


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.shown = None
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim)
        self.value = nn.Linear(dim, dim)
        self.output = nn.Linear(dim, dim)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, padding):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(padding[:, None, None], float("-inf"))
        weights = scores.softmax(dim=-1)
        self.shown = weights.detach()
        mixed = weights @ v
        return self.output(mixed.transpose(1, 2).flatten(2))


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, padding):
        x = x + self.attention(self.norm1(x), padding)
        return x + self.mlp(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self, words=40, dim=32, heads=4, depth=2, classes=3):
        super().__init__()
        self.embedding = nn.Embedding(words, dim, padding_idx=0)
        self.layers = nn.ModuleList(EncoderLayer(dim, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, ids):
        padding = ids == 0
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, padding)
        return self.head(self.norm(x)[:, 0])


def build_model():
    torch.manual_seed(34)
    return Encoder()


def build_batch():
    generator = torch.Generator().manual_seed(35)
    ids = torch.randint(1, 40, (8, 16), generator=generator)
    for row, length in enumerate(torch.randint(8, 17, (8,), generator=generator).tolist()):
        ids[row, length:] = 0
    return ids, torch.randint(0, 3, (8,), generator=generator)


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
