"""A transformer feed-forward layer with a sparse mixture of experts."""

import torch
from torch import nn
from torch.nn import functional as F


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class SwitchFeedForward(nn.Module):
    def __init__(self, dim=24, hidden=32, experts=4, k=1):
        super().__init__()
        self.k = k
        self.router = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(experts))

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        logits = self.router(tokens)
        probs = logits.softmax(dim=-1)
        gates, indices = probs.topk(self.k, dim=-1)
        out = torch.zeros_like(tokens)
        for i, expert in enumerate(self.experts):
            rows, slot = (indices == i).nonzero(as_tuple=True)
            if len(rows):
                out = out.index_add(0, rows, gates[rows, slot, None] * expert(tokens[rows]))
        return out.reshape(x.shape)


class MoEBlock(nn.Module):
    def __init__(self, vocab=40, dim=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.attention = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.moe = SwitchFeedForward(dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.embed(ids)
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        x = x + self.moe(self.norm2(x))
        return self.head(x)


def build_model():
    torch.manual_seed(27)
    return MoEBlock()


def build_batch():
    g = torch.Generator().manual_seed(28)
    return torch.randint(40, (6, 12), generator=g), torch.randint(40, (6, 12), generator=g)


def compute_loss(model, batch):
    ids, labels = batch
    return F.cross_entropy(model(ids).transpose(1, 2), labels)
