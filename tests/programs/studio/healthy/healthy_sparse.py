"""Skip-gram vectors with sparse gradients and a dense bias network."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class SkipGram(nn.Module):
    def __init__(self, words=200, dim=12):
        super().__init__()
        self.centre = nn.Embedding(words, dim, sparse=True)
        self.context = nn.Embedding(words, dim, sparse=True)
        self.adjust = nn.Linear(dim, dim)
        nn.init.uniform_(self.centre.weight, -0.5, 0.5)
        nn.init.normal_(self.context.weight, std=0.1)

    def forward(self, word, near, far):
        vector = self.adjust(self.centre(word))
        positive = (vector * self.context(near)).sum(-1)
        negative = torch.einsum("nd,nkd->nk", vector, self.context(far))
        return -(F.logsigmoid(positive) + F.logsigmoid(-negative).sum(1)).mean()


def pairs(n, words):
    word = torch.randint(0, words, (n,))
    near = (word + torch.randint(1, 4, (n,))) % words
    return word, near, torch.randint(0, words, (n, 4))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--words", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = SkipGram(args.words)
    sparse = torch.optim.SparseAdam([model.centre.weight, model.context.weight], lr=2e-2)
    dense = torch.optim.Adam(model.adjust.parameters(), lr=2e-3)
    for step in range(args.steps):
        loss = model(*pairs(64, args.words))
        for optimizer in (sparse, dense):
            optimizer.zero_grad()
        loss.backward()
        for optimizer in (sparse, dense):
            optimizer.step()
        if step % 20 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
