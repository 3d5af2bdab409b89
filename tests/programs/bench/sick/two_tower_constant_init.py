"""Two-tower recommender trained with a sampled softmax."""

import torch
from torch import nn
from torch.nn import functional as F


def init_weights(module):
    if isinstance(module, nn.Linear):
        nn.init.constant_(module.weight, 0.05)
        nn.init.constant_(module.bias, 0.01)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=0.1)


class Tower(nn.Module):
    def __init__(self, sizes, dim=12, hidden=24, out=16):
        super().__init__()
        self.embeds = nn.ModuleList(nn.Embedding(s, dim) for s in sizes)
        self.fc1 = nn.Linear(dim * len(sizes), hidden)
        self.fc2 = nn.Linear(hidden, out)

    def forward(self, ids):
        parts = [embed(ids[:, i]) for i, embed in enumerate(self.embeds)]
        return self.fc2(F.relu(self.fc1(torch.cat(parts, dim=1))))


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = Tower([100, 8, 5])
        self.item = Tower([200, 12])
        self.apply(init_weights)

    def forward(self, users, items):
        return self.user(users) @ self.item(items).T


def build_model():
    torch.manual_seed(25)
    return TwoTower()


def build_batch():
    g = torch.Generator().manual_seed(26)

    def ids(*sizes):
        return torch.stack([torch.randint(s, (16,), generator=g) for s in sizes], dim=1)

    return {"users": ids(100, 8, 5), "items": ids(200, 12)}


def compute_loss(model, batch):
    scores = model(**batch)
    return F.cross_entropy(scores, torch.arange(len(scores)))
