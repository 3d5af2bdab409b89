import torch
import torch.nn.functional as F
from torch import nn


class Expert(nn.Sequential):
    def __init__(self, dim):
        super().__init__(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))


class SparseMoE(nn.Module):
    def __init__(self, dim, num_experts, top_k=1):
        super().__init__()
        self.router = nn.Linear(dim, num_experts, bias=False)
        self.experts = nn.ModuleList(Expert(dim) for _ in range(num_experts))
        self.top_k = top_k

    def forward(self, x):
        batch, length, dim = x.shape
        tokens = x.reshape(-1, dim)
        probs = F.softmax(self.router(tokens), dim=-1)
        weights, chosen = torch.topk(probs, self.top_k, dim=-1)
        if self.top_k > 1:
            weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == index)
            if rows.numel():
                out = out.index_add(0, rows, expert(tokens[rows]) * weights[rows, slot, None])
        return out.view(batch, length, dim)


class Block(nn.Module):
    def __init__(self, dim, heads, experts):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.moe = SparseMoE(dim, experts)

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.moe(self.norm2(x))


class Classifier(nn.Module):
    def __init__(self, vocab=40, dim=32, classes=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, 4, 4) for _ in range(2))
        self.head = nn.Linear(dim, classes)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def build_model():
    torch.manual_seed(21)
    return Classifier()


def build_batch():
    g = torch.Generator().manual_seed(22)
    ids = torch.randint(0, 40, (24, 10), generator=g)
    return ids, ids.sum(1) % 4


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
