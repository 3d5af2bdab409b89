"""Aligns small pictures with captions by a symmetric contrastive loss."""

import torch
import torch.nn.functional as F
from torch import nn


class Picture(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 12, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.project = nn.Linear(24, dim)

    def forward(self, pixels):
        return self.project(self.features(pixels))


class Caption(nn.Module):
    def __init__(self, words=40, dim=24):
        super().__init__()
        self.table = nn.Embedding(words, dim)
        self.mix = nn.Linear(dim, dim)

    def forward(self, tokens):
        return self.mix(self.table(tokens).mean(1))


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.picture = Picture()
        self.caption = Caption()
        self.temperature = nn.Parameter(torch.tensor(2.0))

    def forward(self, pixels, tokens):
        seen = F.normalize(self.picture(pixels), dim=-1)
        said = F.normalize(self.caption(tokens), dim=-1)
        return self.temperature.exp() * seen @ said.T


def main():
    torch.manual_seed(3)
    model = Pairs()
    optimizer = torch.optim.AdamW(
        [
            {"params": model.picture.parameters(), "lr": 5e-4},
            {"params": model.caption.parameters(), "lr": 2e-3},
            {"params": [model.temperature], "lr": 1e-2, "weight_decay": 0.0},
        ]
    )
    for step in range(24):
        kinds = torch.randperm(20)[:16]
        pixels = torch.randn(16, 3, 12, 12) + kinds.view(-1, 1, 1, 1) / 10
        tokens = torch.stack([kinds, kinds + 20], 1)
        logits = model(pixels, tokens)
        target = torch.arange(16)
        loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(step, round(loss.item(), 4))


main()
