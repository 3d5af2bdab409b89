"""Copy the first symbol of a sequence after a delay."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(36)
SYMBOLS, DELAY = 6, 6


class Memory(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.hidden = hidden
        self.embed = nn.Embedding(SYMBOLS + 1, 16)
        self.cell = nn.LSTMCell(16, hidden)
        self.out = nn.Linear(hidden, SYMBOLS)

    def forward(self, ids):
        h = torch.zeros(len(ids), self.hidden)
        c = torch.zeros(len(ids), self.hidden)
        states = []
        for t in range(ids.shape[1]):
            h, c = self.cell(self.embed(ids[:, t]), (h, c))
            states.append(h)
            h, c = h.data, c.data
        return self.out(states[-1])


def batch(n):
    first = torch.randint(SYMBOLS, (n, 1))
    return torch.cat([first, torch.full((n, DELAY), SYMBOLS)], 1), first.squeeze(1)


model = Memory()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(100):
    ids, target = batch(32)
    loss = F.cross_entropy(model(ids), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
