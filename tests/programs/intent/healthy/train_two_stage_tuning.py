"""Tunes a head first, then the body below it."""

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, 48), nn.GELU())
        self.head = nn.Sequential(nn.Linear(48, 32), nn.GELU(), nn.Linear(32, 5))

    def forward(self, x):
        return self.head(self.body(x))


def batches(count, centres):
    for _ in range(count):
        kinds = torch.randint(0, 5, (32,))
        yield centres[kinds] + torch.randn(32, 20), kinds


def main():
    torch.manual_seed(13)
    model = Net()
    model.body.requires_grad_(False)
    optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=1e-3)
    centres = torch.randn(5, 20)
    for epoch in range(4):
        if epoch == 2:
            model.body.requires_grad_(True)
            optimizer.add_param_group({"params": model.body.parameters(), "lr": 1e-4})
        for x, kinds in batches(15, centres):
            loss = F.cross_entropy(model(x), kinds)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, f"{loss.item():.4f}")


main()
