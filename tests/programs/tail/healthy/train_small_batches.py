"""Learns from very small batches, as memory allows no larger ones."""

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(10, 64)
        self.second = nn.Linear(64, 64)
        self.out = nn.Linear(64, 3)

    def forward(self, x):
        return self.out(F.relu(self.second(F.relu(self.first(x)))))


def main():
    torch.manual_seed(14)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    centres = torch.randn(3, 10)
    for step in range(200):
        kinds = torch.randint(0, 3, (4,))
        loss = F.cross_entropy(model(centres[kinds] + torch.randn(4, 10)), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(step, f"{loss.item():.4f}")


main()
