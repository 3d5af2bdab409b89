"""Recommends the next item of a session with self-attention."""

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.norm1 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x, mask):
        x = self.norm1(x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0])
        return self.norm2(x + self.mlp(x))


class SessionModel(nn.Module):
    def __init__(self, items=300, width=48, depth=3, length=200):
        super().__init__()
        self.items = nn.Embedding(items, width)
        self.layers = nn.ModuleList([Layer(width) for _ in range(depth)])

    def forward(self, session):
        length = session.shape[1]
        index = torch.arange(length)
        x = self.items(session) + index.float().view(1, -1, 1)
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        for layer in self.layers:
            x = layer(x, mask)
        return x @ self.items.weight.T / x.shape[-1] ** 0.5


def build_model():
    torch.manual_seed(67)
    return SessionModel()


def build_batch():
    torch.manual_seed(68)
    session = torch.randint(0, 300, (4, 201))
    return session[:, :-1], session[:, 1:]


def loss_fn(output, batch):
    return F.cross_entropy(output.flatten(0, 1), batch[1].flatten())
