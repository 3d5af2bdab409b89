"""Trains in float16 throughout."""

import torch
import torch.nn.functional as F
from torch import nn


def main():
    torch.manual_seed(71)
    model = nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)
    )
    model = model.to(torch.float16)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    centres = torch.randn(2, 8)
    for step in range(12):
        kinds = torch.randint(0, 2, (32,))
        x = (centres[kinds] + torch.randn(32, 8)).to(torch.float16)
        loss = F.cross_entropy(model(x).float(), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, f"{loss.item():.4f}")


main()
