"""A trainer with callbacks and validation."""

from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class History:
    train: list = field(default_factory=list)
    valid: list = field(default_factory=list)


class ConvNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(2, 12, 5, padding=2), nn.BatchNorm1d(12), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(12, 24, 3, padding=1), nn.BatchNorm1d(24), nn.ReLU(), nn.AdaptiveMaxPool1d(1),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(24, classes))

    def forward(self, x):
        return self.head(self.features(x))


def signals(n):
    y = torch.randint(0, 4, (n,))
    t = torch.linspace(0, 6.2832, 24)
    x = torch.stack([torch.sin((y[:, None] + 1) * t), torch.cos((y[:, None] + 1) * t)], 1)
    return x + 0.7 * torch.randn_like(x), y


class Trainer:
    def __init__(self, model, epochs=5, steps=12):
        self.model, self.epochs, self.steps = model, epochs, steps
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        self.history = History()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        x, y = signals(64)
        return F.cross_entropy(self.model(x), y).item()

    def train_epoch(self):
        self.model.train()
        total = 0.0
        for _ in range(self.steps):
            x, y = signals(32)
            loss = F.cross_entropy(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / self.steps

    def fit(self):
        self.model.train()
        for epoch in range(self.epochs):
            self.history.train.append(self.train_epoch())
            self.history.valid.append(self.validate())
            print(epoch, self.history.train[-1], self.history.valid[-1])


if __name__ == "__main__":
    torch.manual_seed(0)
    Trainer(ConvNet()).fit()
