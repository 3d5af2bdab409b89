"""Reads a sentence in both directions."""

import torch
import torch.nn.functional as F
from torch import nn


class Sentence(nn.Module):
    def __init__(self, words=30, width=20):
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, 2)

    def forward(self, tokens):
        states, (last, _) = self.rnn(self.table(tokens))
        summary = states[:, -1]
        return self.out(summary)


def main():
    torch.manual_seed(59)
    model = Sentence()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(20):
        tokens = torch.randint(0, 30, (24, 10))
        loss = F.cross_entropy(model(tokens), (tokens[:, 0] > tokens[:, -1]).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(step, f"{loss.item():.4f}")


main()
