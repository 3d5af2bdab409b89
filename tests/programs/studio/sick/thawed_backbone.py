"""Transfer learning in two phases."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Classifier(nn.Module):
    def __init__(self, backbone, features, classes):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(features, classes)

    def freeze(self):
        for param in self.backbone.parameters():
            param.requires_grad = False

    def unfreeze(self):
        for param in self.backbone.parameters():
            param.requires_grad = True

    def forward(self, x):
        return self.head(self.backbone(x))


def backbone():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )


def stripes(n):
    y = torch.randint(0, 3, (n,))
    x = torch.randn(n, 1, 12, 12)
    wave = torch.sin(torch.arange(12) * 1.5)
    x[y == 0] += wave.view(1, 1, 1, 12)
    x[y == 1] += wave.view(1, 1, 12, 1)
    return x, y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--unfreeze-at", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--lr", type=float, default=5e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Classifier(backbone(), 16, 3)
    model.freeze()
    optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=args.lr)
    for epoch in range(args.epochs):
        if epoch == args.unfreeze_at:
            model.unfreeze()
        for _ in range(args.steps):
            x, y = stripes(32)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
