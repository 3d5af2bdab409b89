"""House-price style regression with a custom robust loss."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Houses(Dataset):
    def __init__(self, n, features=12):
        generator = torch.Generator().manual_seed(3)
        self.x = torch.randn(n, features, generator=generator)
        weights = torch.randn(features, generator=generator)
        self.y = self.x @ weights + 0.5 * torch.relu(self.x[:, 0] * 3)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Regressor(nn.Module):
    def __init__(self, features=12, width=48):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features, width), nn.SELU(), nn.Linear(width, width), nn.SELU())
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.layers(x))


def log_cosh(prediction, target):
    error = prediction - target
    return (error + nn.functional.softplus(-2 * error)).mean()


def run_epoch(model, loader, optimizer):
    total = 0.0
    for x, y in loader:
        loss = log_cosh(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(Houses(320), batch_size=args.batch, shuffle=True)
    model = Regressor()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        print(epoch, run_epoch(model, loader, optimizer))


if __name__ == "__main__":
    main()
