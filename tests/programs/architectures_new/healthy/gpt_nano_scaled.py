"""A deep causal language model whose residual projections start small."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.norm2 = nn.LayerNorm(width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.relu(self.up(self.norm2(x))).square())


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=256, width=64, depth=24, heads=4, length=64):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.words.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                scale = 1 / math.sqrt(2 * depth) if name.endswith(("proj.weight", "down.weight")) else 1
                nn.init.normal_(parameter, std=0.02 * scale)

    def forward(self, tokens):
        x = self.words(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build_model():
    torch.manual_seed(201)
    return LanguageModel()


def build_batch():
    torch.manual_seed(202)
    tokens = torch.randint(0, 256, (4, 49))
    labels = tokens[:, 1:].clone()
    labels[:, :10] = -100
    return tokens[:, :-1], labels


def loss_fn(output, batch):
    return F.cross_entropy(output.flatten(0, 1), batch[1].flatten(), ignore_index=-100)


def build_optimizer(model):
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    return torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain}], lr=6e-4)
