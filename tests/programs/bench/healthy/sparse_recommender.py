"""Bayesian personalized ranking with sparse embeddings and a dense bias."""

import torch
from torch import nn
from torch.nn import functional as F

USERS, ITEMS, DIM = 300, 1000, 16


class BPR(nn.Module):
    def __init__(self):
        super().__init__()
        self.users = nn.Embedding(USERS, DIM, sparse=True)
        self.items = nn.Embedding(ITEMS, DIM, sparse=True)
        self.gain = nn.Parameter(torch.ones(DIM))
        nn.init.normal_(self.users.weight, std=0.1)
        nn.init.normal_(self.items.weight, std=0.1)

    def score(self, u, i):
        return (self.users(u) * self.items(i) * self.gain).sum(1)

    def forward(self, u, pos, neg):
        return -F.logsigmoid(self.score(u, pos) - self.score(u, neg)).mean()


def clicks(n=2000):
    u = torch.randint(USERS, (n,))
    popular = torch.distributions.Geometric(0.02).sample((n,)).long()
    return u, (popular * 7 + u % 5).clamp(max=ITEMS - 1)


def main():
    torch.manual_seed(8)
    model = BPR()
    sparse = torch.optim.SparseAdam([model.users.weight, model.items.weight], lr=1e-2)
    dense = torch.optim.Adam([model.gain], lr=1e-3)
    users, items = clicks()
    for epoch in range(2):
        total = 0.0
        for index in torch.randperm(len(users)).split(128):
            negative = torch.randint(ITEMS, (len(index),))
            loss = model(users[index], items[index], negative)
            for opt in (sparse, dense):
                opt.zero_grad()
            loss.backward()
            for opt in (sparse, dense):
                opt.step()
            total += loss.item()
        print(f"epoch {epoch}: {total:.3f}")


if __name__ == "__main__":
    main()
