"""Token classifier with a sparse mixture of experts (top-1 routing) in a residual branch."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class SparseMoE(nn.Module):
    def __init__(self, dim, n_experts=4, top_k=1):
        super().__init__()
        self.top_k = top_k
        self.router = nn.Linear(dim, n_experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)) for _ in range(n_experts))

    def forward(self, x):
        flat = x.reshape(-1, x.shape[-1])
        probs = F.softmax(self.router(flat), dim=-1)
        weight, chosen = torch.topk(probs, self.top_k, dim=-1)
        total = weight.sum(dim=-1, keepdim=True)
        weight = weight / total
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == i)
            out = out.index_add(0, rows, weight[rows, slot, None] * expert(flat[rows]))
        return out.view_as(x)


class Tagger(nn.Module):
    def __init__(self, vocab=40, dim=24, n_tags=5):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.norm = nn.LayerNorm(dim)
        self.moe = SparseMoE(dim)
        self.head = nn.Linear(dim, n_tags)

    def forward(self, tokens):
        h = self.embed(tokens)
        h = h + self.moe(self.norm(h))
        return self.head(h)


def build_model():
    torch.manual_seed(181)
    return Tagger()


def build_batch():
    g = torch.Generator().manual_seed(182)
    return torch.randint(0, 40, (12, 10), generator=g), torch.randint(0, 5, (12, 10), generator=g)


def loss_fn(output, batch):
    return F.cross_entropy(output.flatten(0, 1), batch[1].flatten())
