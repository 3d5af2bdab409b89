"""Dense retrieval with in-batch and hard negatives and a learned temperature."""

import torch
from torch import nn
from torch.nn import functional as F


class BiEncoder(nn.Module):
    def __init__(self, vocab=60, dim=24):
        super().__init__()
        self.embed = nn.EmbeddingBag(vocab, dim)
        self.query_proj = nn.Linear(dim, dim)
        self.passage_proj = nn.Linear(dim, dim)
        self.temperature = nn.Parameter(torch.tensor(0.07))

    def query(self, ids):
        return F.normalize(self.query_proj(self.embed(ids)), dim=-1)

    def passage(self, ids):
        shape = ids.shape[:-1]
        vectors = self.passage_proj(self.embed(ids.reshape(-1, ids.shape[-1])))
        return F.normalize(vectors, dim=-1).reshape(*shape, -1)


def infonce_loss(model, batch):
    q = model.query(batch["query"])
    p = model.passage(batch["positive"])
    n = model.passage(batch["negatives"])
    in_batch = q @ p.T
    hard = torch.einsum("bd,bkd->bk", q, n)
    hard = hard.masked_fill(~batch["negative_mask"], float("-inf"))
    logits = torch.cat([in_batch, hard], dim=1) / model.temperature
    return F.cross_entropy(logits, torch.arange(len(q)))


def compute_loss(model, batch):
    return infonce_loss(model, batch)


def build_model():
    torch.manual_seed(11)
    return BiEncoder()


def build_batch():
    g = torch.Generator().manual_seed(12)
    mask = torch.arange(4)[None] < torch.tensor([4, 2, 3, 1, 4, 2])[:, None]
    return {
        "query": torch.randint(60, (6, 5), generator=g),
        "positive": torch.randint(60, (6, 12), generator=g),
        "negatives": torch.randint(60, (6, 4, 12), generator=g),
        "negative_mask": mask,
    }
