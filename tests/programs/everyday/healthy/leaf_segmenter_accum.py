import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class UNetSmall(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU())
        self.mid = nn.Sequential(nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.out = nn.Conv2d(2 * width, 1, 1)

    def forward(self, x):
        skip = self.down(x)
        h = F.relu(self.up(self.mid(skip)))
        return self.out(torch.cat([h, skip], 1))


def leaves(n, size=16):
    x = torch.randn(n, 3, size, size) * 0.3
    grid = torch.arange(size).float()
    centre = torch.randint(4, size - 4, (n, 2)).float()
    dist = (grid[None, :, None] - centre[:, :1, None]) ** 2 + (grid[None, None] - centre[:, 1:, None]) ** 2
    mask = (dist < 12).float().unsqueeze(1)
    x[:, 1:2] += mask
    return x, mask


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()

    torch.manual_seed(10)
    loader = DataLoader(TensorDataset(*leaves(256)), batch_size=8, shuffle=True)
    model = UNetSmall()
    optimizer = torch.optim.Adam(model.parameters(), lr=6e-3)
    for epoch in range(args.epochs):
        seen = 0.0
        optimizer.zero_grad()
        for i, (x, mask) in enumerate(loader):
            loss = F.binary_cross_entropy_with_logits(model(x), mask) / args.accumulate
            loss.backward()
            seen += loss.item() * args.accumulate
            if (i + 1) % args.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
        print(f"epoch {epoch}: {seen / len(loader):.4f}")


if __name__ == "__main__":
    main()
