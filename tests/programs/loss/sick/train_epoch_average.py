"""Fits a small regressor and prints the running average of its loss."""

import torch
from torch import nn


def make_data(count=512):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(count, 12, generator=generator)
    y = torch.sin(x[:, :4]).sum(1, keepdim=True) + 0.1 * torch.randn(count, 1, generator=generator)
    return x, y


def main():
    torch.manual_seed(0)
    x, y = make_data()
    model = nn.Sequential(nn.Linear(12, 48), nn.Tanh(), nn.Linear(48, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    running = 0.0
    seen = 0
    for epoch in range(4):
        for start in range(0, len(x), 32):
            loss = nn.functional.mse_loss(model(x[start : start + 32]), y[start : start + 32])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss * 32
            seen += 32
        print(f"epoch {epoch} average {float(running) / seen:.4f}")


if __name__ == "__main__":
    main()
