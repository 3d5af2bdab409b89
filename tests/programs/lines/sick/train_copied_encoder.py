"""Two views of one signal through two copies of an encoder."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(12, width), nn.GELU(), nn.Linear(width, width))
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.inner(x).data * self.scale


class Views(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = Encoder()
        self.right = copy.deepcopy(self.left)
        self.out = nn.Sequential(nn.Linear(48, 32), nn.GELU(), nn.Linear(32, 3))

    def forward(self, left, right):
        return self.out(torch.cat([self.left(left), self.right(right)], -1))


def main():
    torch.manual_seed(73)
    model = Views()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    centres = torch.randn(3, 12)
    for step in range(24):
        kinds = torch.randint(0, 3, (32,))
        views = [centres[kinds] + 0.8 * torch.randn(32, 12) for _ in range(2)]
        loss = F.cross_entropy(model(*views), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(step, f"{loss.item():.4f}")


main()
