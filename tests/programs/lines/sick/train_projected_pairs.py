"""Measures how alike two vectors are after a projection."""

import torch
import torch.nn.functional as F
from torch import nn


class Alike(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Linear(10, width)
        self.out = nn.Linear(width, 1)

    def forward(self, left, right):
        both = torch.relu(self.embed(left)) * torch.relu(self.embed(right))
        project = nn.Linear(both.shape[1], both.shape[1])
        mixed = project(both)
        return self.out(torch.relu(mixed)).squeeze(1)


def main():
    torch.manual_seed(47)
    model = Alike()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(24):
        left, noise = torch.randn(32, 10), torch.randn(32, 10)
        same = (torch.rand(32) < 0.5).float()
        right = left * same[:, None] + noise * (1 - same[:, None])
        loss = F.binary_cross_entropy_with_logits(model(left, right), same)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(step, f"{loss.item():.4f}")


main()
