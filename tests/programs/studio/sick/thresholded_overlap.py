"""Segment discs with a mix of cross-entropy and Dice loss."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class SegNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.GroupNorm(3, width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=2, dilation=2), nn.GroupNorm(3, width), nn.ReLU(),
        )
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        return self.out(self.body(x))


class DiceLoss(nn.Module):
    def __init__(self, smooth=1.0):
        super().__init__()
        self.smooth = smooth

    def forward(self, logits, target):
        prediction = logits.sigmoid()
        prediction = (prediction > 0.5).float()
        overlap = (prediction * target).sum((1, 2, 3))
        total = prediction.sum((1, 2, 3)) + target.sum((1, 2, 3))
        return 1 - ((2 * overlap + self.smooth) / (total + self.smooth)).mean()


class MixedLoss(nn.Module):
    def __init__(self, dice_weight):
        super().__init__()
        self.dice, self.dice_weight = DiceLoss(), dice_weight

    def forward(self, logits, target):
        entropy = F.binary_cross_entropy_with_logits(logits, target)
        return (1 - self.dice_weight) * entropy + self.dice_weight * self.dice(logits, target)


def discs(n, size=20):
    grid = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij"))
    centre = torch.randint(4, size - 4, (n, 2, 1, 1))
    mask = ((grid - centre).pow(2).sum(1, keepdim=True) < 9).float()
    return mask + 0.5 * torch.randn_like(mask), mask


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dice-weight", type=float, default=0.8)
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()
    torch.manual_seed(0)
    model, criterion = SegNet(), MixedLoss(args.dice_weight)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(args.steps):
        images, masks = discs(8)
        loss = criterion(model(images), masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
