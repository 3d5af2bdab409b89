"""Models symbolic music with a causal transformer and a tied output layer."""

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.norm2(x))


class MusicModel(nn.Module):
    def __init__(self, events=180, width=64, depth=8, length=64):
        super().__init__()
        self.events = nn.Embedding(events, width)
        self.positions = nn.Embedding(length, width)
        self.layers = nn.ModuleList([Layer(width, 4) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, events, bias=False)
        nn.init.normal_(self.events.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        self.head.weight = self.events.weight

    def forward(self, tokens):
        x = self.events(tokens) + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def build_model():
    torch.manual_seed(57)
    return MusicModel()


def build_batch():
    torch.manual_seed(58)
    tokens = torch.randint(0, 180, (4, 49))
    return tokens[:, :-1], tokens[:, 1:]


def loss_fn(output, batch):
    return F.cross_entropy(output.flatten(0, 1), batch[1].flatten())


def build_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=3e-4)
