"""Trains all layers at first, and after some epochs only the upper ones."""

import torch
import torch.nn.functional as F
from torch import nn


def main():
    torch.manual_seed(6)
    stem = nn.Sequential(nn.Linear(16, 48), nn.ReLU())
    rest = nn.Sequential(nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 6))
    model = nn.Sequential(stem, rest)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    centres = torch.randn(6, 16)
    for epoch in range(8):
        if epoch == 4:
            stem.requires_grad_(False)
        for _ in range(10):
            kinds = torch.randint(0, 6, (32,))
            loss = F.cross_entropy(model(centres[kinds] + torch.randn(32, 16)), kinds)
            optimizer.zero_grad(set_to_none=False)
            loss.backward()
            optimizer.step()
        print(epoch, f"{loss.item():.4f}")


main()
