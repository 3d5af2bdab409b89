"""Train a sentence encoder with a ranking loss."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class SentenceEncoder(nn.Module):
    def __init__(self, vocab=60, dim=24):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocab, dim, mode="mean")
        self.dense = nn.Sequential(nn.Linear(dim, dim), nn.Tanh())
        self.projection = nn.Linear(dim, 16)

    @torch.no_grad()
    def encode(self, tokens):
        return self.dense(self.embedding(tokens))

    def forward(self, tokens):
        return F.normalize(self.projection(self.encode(tokens)), dim=-1)


class RankingLoss(nn.Module):
    def __init__(self, scale=10.0):
        super().__init__()
        self.scale = scale

    def forward(self, anchors, positives):
        scores = self.scale * anchors @ positives.T
        return F.cross_entropy(scores, torch.arange(len(scores)))


def sentences(n, length=8):
    topic = torch.randint(0, 6, (n, 1))
    first = topic * 10 + torch.randint(0, 10, (n, length))
    second = topic * 10 + torch.randint(0, 10, (n, length))
    noise = torch.randint(0, 60, (n, 2))
    return torch.cat([first, noise], 1), torch.cat([second, noise], 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model, criterion = SentenceEncoder(), RankingLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for step in range(args.steps):
        first, second = sentences(32)
        loss = criterion(model(first), model(second))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item())
    probe, _ = sentences(4)
    print(model.encode(probe).norm(dim=1).tolist())


if __name__ == "__main__":
    main()
