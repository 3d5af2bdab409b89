"""Train a residual super-resolution network on synthetic textures."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR

EPOCHS = 12
BATCHES_PER_EPOCH = 10


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a = nn.Conv2d(c, c, 3, padding=1)
        self.b = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return x + self.b(F.relu(self.a(x)))


class SRNet(nn.Module):
    def __init__(self, c=8, scale=2):
        super().__init__()
        self.head = nn.Conv2d(1, c, 3, padding=1)
        self.body = nn.Sequential(Residual(c), Residual(c))
        self.tail = nn.Sequential(nn.Conv2d(c, scale * scale, 3, padding=1), nn.PixelShuffle(scale))

    def forward(self, x):
        return self.tail(self.body(self.head(x))) + F.interpolate(x, scale_factor=2.0)


def texture_batch(n=4, size=16):
    grid = torch.linspace(0, 6.28, size)
    phase = torch.rand(n, 2, 1, 1) * 6.28
    freq = torch.rand(n, 2, 1, 1) * 3 + 1
    rows = torch.sin(freq[:, 0] * grid[None, :, None] + phase[:, 0])
    cols = torch.sin(freq[:, 1] * grid[None, None, :] + phase[:, 1])
    high = (rows + cols).unsqueeze(1)
    return F.avg_pool2d(high, 2), high


def main():
    torch.manual_seed(8)
    model = SRNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    scheduler = StepLR(optimizer, step_size=EPOCHS // 3, gamma=0.1)
    for epoch in range(EPOCHS):
        total = 0.0
        for _ in range(BATCHES_PER_EPOCH):
            low, high = texture_batch()
            loss = F.l1_loss(model(low), high)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item()
        print(f"epoch {epoch} l1 {total / BATCHES_PER_EPOCH:.4f}")


if __name__ == "__main__":
    main()
