"""Regression of a drifting sensor, with gradients accumulated over four batches."""

import torch
from torch import nn

WINDOW = 4


def readings():
    torch.manual_seed(5)
    time = torch.rand(7 * 16, 6)
    drift = time @ torch.tensor([0.6, -1.0, 0.3, 0.9, -0.2, 0.5]) + 0.3 * time[:, 0] * time[:, 1]
    return list(zip(time.split(16), drift.unsqueeze(1).split(16)))


class Calibrator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))

    def forward(self, x):
        return self.net(x)


def train(epochs=9):
    torch.set_num_threads(1)
    batches = readings()
    torch.manual_seed(0)
    model = Calibrator()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = 0
    for epoch in range(epochs):
        total = 0.0
        for index, (x, y) in enumerate(batches):
            loss = nn.functional.mse_loss(model(x), y)
            (loss / WINDOW).backward()
            seen += 1
            if seen % WINDOW == 0:
                optimizer.step()
                optimizer.zero_grad()
            total += loss.item()
        print(f"epoch {epoch} mse {total / len(batches):.4f}")


if __name__ == "__main__":
    train()
