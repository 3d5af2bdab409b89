"""Learns to find passages for queries; passages are embedded by a second network."""

import torch
import torch.nn.functional as F
from torch import nn


class Retriever(nn.Module):
    def __init__(self, words=120, dim=24):
        super().__init__()
        self.query = nn.Sequential(nn.EmbeddingBag(words, dim), nn.Linear(dim, dim))
        self.passage = nn.Sequential(nn.EmbeddingBag(words, dim), nn.Linear(dim, dim))

    def embed_passages(self, tokens):
        return F.normalize(self.passage(tokens), dim=-1)

    def forward(self, queries, passages):
        return 10 * F.normalize(self.query(queries), dim=-1) @ self.embed_passages(passages).T


def main():
    torch.manual_seed(31)
    model = Retriever()
    optimizer = torch.optim.Adam(
        [
            {"params": model.query.parameters(), "lr": 2e-3},
            {"params": model.passage.parameters(), "lr": 1e-3},
        ]
    )
    for step in range(24):
        passages = torch.randint(0, 120, (16, 12))
        queries = passages[:, :4]
        loss = F.cross_entropy(model(queries, passages), torch.arange(16))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(step, f"{loss.item():.4f}")


main()
