import argparse
import copy
import io

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(6, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )

    def forward(self, x):
        return self.layers(x).squeeze(1)


def tables(n=1200):
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(n, 6, generator=generator)
    y = x[:, 0] * x[:, 1] + torch.sin(2 * x[:, 2]) + 0.1 * torch.randn(n, generator=generator)
    return TensorDataset(x[:900], y[:900]), TensorDataset(x[900:], y[900:])


def save(model, optimizer, epoch):
    file = io.BytesIO()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, file)
    return file.getvalue()


def train_epoch(model, optimizer, loader):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()


@torch.no_grad()
def validate(model, loader):
    model.eval()
    return sum(F.mse_loss(model(x), y, reduction="sum").item() for x, y in loader) / 300


def restart(checkpoint, model, optimizer):
    state = torch.load(io.BytesIO(checkpoint))
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--restart-at", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(16)
    train, valid = tables()
    train_loader = DataLoader(train, batch_size=60, shuffle=True)
    valid_loader = DataLoader(valid, batch_size=100)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    best, checkpoint = float("inf"), None
    for epoch in range(args.epochs):
        if epoch == args.restart_at:
            model = restart(checkpoint, model, optimizer)
        train_epoch(model, optimizer, train_loader)
        score = validate(model, valid_loader)
        if score < best:
            best, checkpoint = score, copy.copy(save(model, optimizer, epoch))
        print(f"epoch {epoch}: {score:.4f}")


if __name__ == "__main__":
    main()
