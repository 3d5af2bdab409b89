"""Residual regressor for sensor data in float16 autocast."""
import torch
from torch import nn
from torch.amp import GradScaler, autocast


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.a, self.b = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(self.norm(x))))


class Regressor(nn.Module):
    def __init__(self, n_in=12, width=32, depth=3):
        super().__init__()
        self.stem = nn.Linear(n_in, width)
        self.blocks = nn.Sequential(*(Residual(width) for _ in range(depth)))
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)))


def readings(n):
    x = torch.randn(n, 12)
    y = torch.stack([(x[:, :4] * x[:, 4:8]).sum(1), x[:, 8:].abs().sum(1)], 1)
    return x, y / 3


class Loop:
    def __init__(self, lr=2e-2):
        self.model = Regressor()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.9)
        self.scaler = GradScaler("cpu")
        self.criterion = nn.SmoothL1Loss()

    def step(self, x, y):
        with autocast("cpu", dtype=torch.float16):
            prediction = self.model(x)
        loss = self.criterion(prediction.float(), y)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()


def main():
    torch.manual_seed(124)
    loop = Loop()
    for it in range(25):
        loss = loop.step(*readings(64))
        if it % 6 == 0:
            print(f"{it} {loss.item():.4f}")


if __name__ == "__main__":
    main()
