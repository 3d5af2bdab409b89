"""A small causal language model whose feed-forward layers are mixtures of experts."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Expert(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class MixtureOfExperts(nn.Module):
    def __init__(self, width, hidden, count, chosen):
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList([Expert(width, hidden) for _ in range(count)])

    def forward(self, x):
        b, t, c = x.shape
        tokens = x.reshape(-1, c)
        scores = self.router(tokens).softmax(dim=-1)
        weight, index = torch.topk(scores, self.chosen, dim=-1)
        weight = weight / (weight.sum(dim=-1, keepdim=True) + 1e-20)
        y = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            row, slot = torch.where(index == number)
            if row.numel():
                part = expert(tokens[row]) * weight[row, slot].unsqueeze(-1)
                y = y.index_add(0, row, part)
        return y.view(b, t, c)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1 = nn.RMSNorm(width)
        self.attention = Attention(width, 4)
        self.norm2 = nn.RMSNorm(width)
        self.experts = MixtureOfExperts(width, 2 * width, count=4, chosen=1)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.experts(self.norm2(x))


class LanguageModel(nn.Module):
    def __init__(self, vocabulary=200, width=64, depth=6):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def build_model():
    torch.manual_seed(1)
    return LanguageModel()


def build_batch():
    torch.manual_seed(2)
    tokens = torch.randint(0, 200, (4, 33))
    return tokens[:, :-1], tokens[:, 1:]


def loss_fn(output, batch):
    return F.cross_entropy(output.flatten(0, 1), batch[1].flatten())


def build_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=3e-4)
