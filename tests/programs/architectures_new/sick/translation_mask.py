"""A translation model's encoder and decoder with padding masks."""

import torch
import torch.nn.functional as F
from torch import nn

PAD = 0


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def split(self, x):
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)

    def forward(self, x, memory, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(memory)), self.split(self.value(memory))
        score = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
        score = score.masked_fill(~mask, float("-inf"))
        weight = score.softmax(dim=-1)
        return self.out((weight @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width, heads, cross):
        super().__init__()
        self.attention = Attention(width, heads)
        self.norm1 = nn.LayerNorm(width)
        self.cross = Attention(width, heads) if cross else None
        self.norm2 = nn.LayerNorm(width) if cross else None
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width))
        self.norm3 = nn.LayerNorm(width)

    def forward(self, x, mask, memory=None, memory_mask=None):
        x = self.norm1(x + self.attention(x, x, mask))
        if self.cross is not None:
            x = self.norm2(x + self.cross(x, memory, memory_mask))
        return self.norm3(x + self.mlp(x))


class Translator(nn.Module):
    def __init__(self, vocabulary=120, width=48, depth=3):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PAD)
        self.positions = nn.Parameter(torch.randn(32, width) * 0.1)
        self.encoder = nn.ModuleList([Layer(width, 4, False) for _ in range(depth)])
        self.decoder = nn.ModuleList([Layer(width, 4, True) for _ in range(depth)])
        self.head = nn.Linear(width, vocabulary)

    def forward(self, source, target):
        source_mask = (source != PAD).unsqueeze(1).unsqueeze(3)
        causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).tril()
        x = self.embedding(source) + self.positions[: source.shape[1]]
        for layer in self.encoder:
            x = layer(x, source_mask)
        y = self.embedding(target) + self.positions[: target.shape[1]]
        for layer in self.decoder:
            y = layer(y, causal, x, (source != PAD)[:, None, None, :])
        return self.head(y)


def build_model():
    torch.manual_seed(31)
    return Translator()


def build_batch():
    torch.manual_seed(32)
    source = torch.randint(1, 120, (6, 12))
    for row, length in enumerate([12, 9, 11, 7, 12, 5]):
        source[row, length:] = PAD
    target = torch.randint(1, 120, (6, 11))
    return (source, target[:, :-1]), target[:, 1:]


def loss_fn(output, batch):
    return F.cross_entropy(output.flatten(0, 1), batch[1].flatten(), ignore_index=PAD)
