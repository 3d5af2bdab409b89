"""Language model with tied embeddings."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class TiedModel(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        nn.init.normal_(self.embed.weight, std=0.1)
        self.tie()

    def tie(self):
        self.head.weight.data = self.embed.weight.data

    def forward(self, ids):
        hidden, _ = self.rnn(self.embed(ids))
        return self.head(self.norm(hidden))


def sequences(n, length, vocab):
    steps = torch.randint(1, 4, (n, 1))
    start = torch.randint(0, vocab, (n, 1))
    return (start + steps * torch.arange(length)) % vocab


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vocab", type=int, default=30)
    parser.add_argument("--dim", type=int, default=24)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = TiedModel(args.vocab, args.dim)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(args.steps):
        ids = sequences(32, 12, args.vocab)
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
