"""Mixer for small images; validation runs inside a context manager."""
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import nn


@contextmanager
def evaluating(net):
    mode = net.training
    net.eval()
    try:
        with torch.no_grad():
            yield net
    finally:
        net.train


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim, drop=0.2):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Dropout(drop), nn.Linear(2 * tokens, tokens))
        self.channels = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(drop), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, patch=4, size=16, dim=32, depth=2, classes=4):
        super().__init__()
        self.patchify = nn.Conv2d(1, dim, patch, patch)
        self.blocks = nn.Sequential(*(MixerBlock((size // patch) ** 2, dim) for _ in range(depth)))
        self.norm = nn.BatchNorm1d(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patchify(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x).mean(1)))


def stripes(n):
    label = torch.randint(0, 4, (n,))
    r, c = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    waves = torch.stack([torch.sin(r), torch.sin(c), torch.sin(r + c), torch.sin(r - c)])
    return waves[label].unsqueeze(1) + 0.7 * torch.randn(n, 1, 16, 16), label


def validate(net, x, y):
    with evaluating(net) as model:
        return (model(x).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(122)
    net = Mixer()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    held_x, held_y = stripes(64)
    for step in range(24):
        x, y = stripes(48)
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 6 == 5:
            print(f"step {step} loss {loss.item():.4f} accuracy {validate(net, held_x, held_y):.3f}")


if __name__ == "__main__":
    main()
