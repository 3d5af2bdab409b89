"""Warm-up, then full speed."""

import torch
import torch.nn.functional as F
from torch import nn


def main():
    torch.manual_seed(37)
    model = nn.Sequential(
        nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 20), nn.ReLU(), nn.Linear(20, 1), nn.ReLU()
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=6.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.01 if step < 20 else 1.0)
    weights = torch.randn(12, 1)
    for step in range(60):
        x = torch.randn(48, 12)
        loss = F.mse_loss(model(x), 4 + x @ weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 15 == 0:
            print(step, f"{loss.item():.4f}")


main()
