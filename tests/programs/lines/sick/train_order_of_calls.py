"""Fits a line."""

import torch
import torch.nn.functional as F
from torch import nn


def main():
    torch.manual_seed(67)
    model = nn.Sequential(nn.Linear(5, 24), nn.ReLU(), nn.Linear(24, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    weights = torch.randn(5, 1)
    for step in range(24):
        x = torch.randn(32, 5)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x @ weights)
        optimizer.step()
        loss.backward()
        if step % 8 == 0:
            print(step, f"{loss.item():.4f}")


main()
