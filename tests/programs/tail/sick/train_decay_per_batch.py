"""Regression with a learning rate that decays."""

import torch
import torch.nn.functional as F
from torch import nn


def main():
    torch.manual_seed(17)
    model = nn.Sequential(
        nn.Linear(8, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    weights = torch.randn(8, 1)
    for epoch in range(6):
        for _ in range(30):
            x = torch.randn(32, 8)
            loss = F.mse_loss(model(x), torch.tanh(x @ weights))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(epoch, f"{loss.item():.4f}")


main()
