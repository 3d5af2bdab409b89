"""Learns a compressed loudness from magnitudes."""

import torch
from torch import nn


class Loudness(nn.Module):
    def __init__(self):
        super().__init__()
        self.bands = nn.Linear(24, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, magnitude):
        energy = torch.relu(self.bands(magnitude))
        loud = energy.clamp(min=1e-4).pow(0.6)
        return self.out(loud)


def main():
    torch.manual_seed(0)
    model = Loudness()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(30):
        magnitude = torch.randn(64, 24)
        target = magnitude[:, :6].abs().sum(1, keepdim=True).pow(0.5)
        loss = nn.functional.mse_loss(model(magnitude), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, round(loss.item(), 4))


if __name__ == "__main__":
    main()
