"""A text classifier with padding."""

import torch
from torch import nn
from torch.nn import functional as F

PAD = 0


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, mask):
        mixed, _ = self.attention(x, x, x, key_padding_mask=mask, need_weights=False)
        x = self.norm1(x + mixed)
        return self.norm2(x + self.ff(x))


class TextClassifier(nn.Module):
    def __init__(self, vocab=50, dim=32, heads=4, classes=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.cls = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.layers = nn.ModuleList(EncoderLayer(dim, heads) for _ in range(2))
        self.head = nn.Linear(dim, classes)

    def forward(self, ids):
        x = torch.cat([self.cls.expand(len(ids), -1, -1), self.embed(ids)], 1)
        mask = F.pad(ids == PAD, (1, 0), value=False)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x[:, 0])


def build_model():
    torch.manual_seed(0)
    return TextClassifier()


def build_batch():
    torch.manual_seed(1)
    ids = torch.randint(1, 50, (16, 12))
    lengths = torch.randint(4, 12, (16, 1))
    ids[torch.arange(12) >= lengths] = PAD
    return ids, torch.randint(0, 3, (16,))


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
