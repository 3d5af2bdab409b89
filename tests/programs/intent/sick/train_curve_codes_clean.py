"""Compresses curves to a few numbers and restores them."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def curves(count):
    times = torch.linspace(0, 1, 32)
    phase = 2 * math.pi * torch.rand(count, 1)
    speed = 1 + 2 * torch.rand(count, 1)
    return torch.sin(speed * 2 * math.pi * times + phase)


def main():
    torch.manual_seed(8)
    encoder = nn.Sequential(nn.Linear(32, 48), nn.Tanh(), nn.Linear(48, 6))
    decoder = nn.Sequential(nn.Linear(6, 48), nn.Tanh(), nn.Linear(48, 32))
    optimizer = torch.optim.Adam(encoder.parameters(), lr=3e-3)
    for step in range(40):
        batch = curves(32)
        encoder.zero_grad()
        decoder.zero_grad()
        loss = F.mse_loss(decoder(encoder(batch)), batch)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, f"{loss.item():.4f}")


main()
