"""Sorts news by fixed word vectors."""

import torch
import torch.nn.functional as F
from torch import nn


class News(nn.Module):
    def __init__(self, vectors, topics):
        super().__init__()
        self.words = nn.Embedding.from_pretrained(vectors)
        self.hidden = nn.Linear(vectors.shape[1], 32)
        self.topic = nn.Linear(32, topics)

    def forward(self, tokens):
        return self.topic(torch.relu(self.hidden(self.words(tokens).mean(1))))


def main():
    torch.manual_seed(22)
    model = News(torch.randn(200, 16), 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(20):
        tokens = torch.randint(0, 200, (32, 9))
        loss = F.cross_entropy(model(tokens), tokens[:, 0] // 50)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
