"""Classifies leaves: convolutions, two hidden layers, a classifier."""

import torch
import torch.nn.functional as F
from torch import nn


class Leaves(nn.Module):
    def __init__(self, kinds=6):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.neck = nn.Sequential(nn.Linear(288, 96), nn.ReLU(), nn.Linear(96, 64), nn.ReLU())
        self.classifier = nn.Linear(64, kinds)

    def forward(self, pixels):
        with torch.no_grad():
            maps = self.backbone(pixels)
        return self.classifier(self.neck(maps))


def main():
    torch.manual_seed(11)
    model = Leaves()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    means = torch.randn(6, 3, 15, 15)
    for step in range(30):
        kinds = torch.randint(0, 6, (24,))
        pixels = means[kinds] + 0.7 * torch.randn(24, 3, 15, 15)
        loss = F.cross_entropy(model(pixels), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, f"{loss.item():.4f}")


main()
