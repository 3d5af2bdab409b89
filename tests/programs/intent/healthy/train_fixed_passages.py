"""Learns queries against a passage tower that stays as it is."""

import torch
import torch.nn.functional as F
from torch import nn


class Retriever(nn.Module):
    def __init__(self, words=120, dim=24):
        super().__init__()
        self.query = nn.Sequential(nn.EmbeddingBag(words, dim), nn.Linear(dim, dim))
        self.passage = nn.Sequential(nn.EmbeddingBag(words, dim), nn.Linear(dim, dim))

    @torch.no_grad()
    def encode_no_grad(self, tokens):
        return F.normalize(self.passage(tokens), dim=-1)

    def forward(self, queries, passages):
        return 10 * F.normalize(self.query(queries), dim=-1) @ self.encode_no_grad(passages).T


def main():
    torch.manual_seed(31)
    model = Retriever()
    optimizer = torch.optim.Adam(model.query.parameters(), lr=2e-3)
    for step in range(24):
        passages = torch.randint(0, 120, (16, 12))
        loss = F.cross_entropy(model(passages[:, :4], passages), torch.arange(16))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
