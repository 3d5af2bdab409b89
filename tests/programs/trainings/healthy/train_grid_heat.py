"""Fits temperatures at points of a plate."""

import torch
import torch.nn.functional as F
from torch import nn


def main():
    torch.manual_seed(1)
    field = nn.Sequential(
        nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
    )
    optimizer = torch.optim.Adam(field.parameters(), lr=3e-3)
    for step in range(60):
        points = torch.rand(64, 2)
        heat = torch.sin(3 * points[:, :1]) * points[:, 1:]
        points.requires_grad_(True)
        guess = field(points)
        loss = F.mse_loss(guess, heat)
        (slope,) = torch.autograd.grad(guess.sum(), points, create_graph=True)
        loss = loss + 1e-3 * slope.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, f"{loss.item():.4f}")


main()
