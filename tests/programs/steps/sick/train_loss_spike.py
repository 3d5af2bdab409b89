"""Energy regression over a stream in which one shard was stored in other units."""

import torch
from torch import nn


def shard(number):
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(32, 10, generator=generator)
    y = (x[:, :3].sum(1) + 0.5 * x[:, 3] * x[:, 4]).unsqueeze(1)
    if number == 170:
        y = y * 100
    return x, y


def main(steps=230):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 48), nn.SiLU(), nn.Linear(48, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    criterion = nn.SmoothL1Loss(beta=2.0)
    for step in range(steps):
        x, y = shard(step)
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step} loss {loss.item():.4f}")


main()
