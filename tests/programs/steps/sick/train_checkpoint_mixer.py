"""A mixer over short sequences with activation checkpointing in its blocks."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width, length, drop=0.2):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.tokens = nn.Linear(length, length)
        self.channels = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(drop), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        x = x + self.tokens(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(x)


class Mixer(nn.Module):
    def __init__(self, width=16, length=10, depth=3, classes=4):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, length) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
        return self.head(x.mean(1))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Mixer()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    prototypes = torch.randn(4, 10, 16)
    for step in range(40):
        label = torch.randint(0, 4, (32,))
        loss = nn.functional.cross_entropy(
            model(prototypes[label] + torch.randn(32, 10, 16)), label
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}")


main()
