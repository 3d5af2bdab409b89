"""Tells the first symbol of a sequence after reading all of it, cell by cell."""

import torch
import torch.nn.functional as F
from torch import nn


class Reader(nn.Module):
    def __init__(self, symbols=8, width=24):
        super().__init__()
        self.table = nn.Embedding(symbols, width)
        self.cell = nn.LSTMCell(width, width)
        self.out = nn.Linear(width, symbols)

    def forward(self, tokens):
        state = tokens.new_zeros(len(tokens), 24, dtype=torch.float32)
        memory = torch.zeros_like(state)
        for position in range(tokens.shape[1]):
            state, memory = self.cell(self.table(tokens[:, position]), (state, memory))
        return self.out(state)


def main():
    torch.manual_seed(4)
    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(12):
        tokens = torch.randint(0, 8, (16, 60))
        loss = F.cross_entropy(model(tokens), tokens[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, f"{loss.item():.4f}")


main()
