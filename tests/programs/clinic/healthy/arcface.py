import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Embedder(nn.Module):
    def __init__(self, inputs=32, dim=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(inputs, 64), nn.BatchNorm1d(64), nn.PReLU(), nn.Linear(64, dim)
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


class AngularMargin(nn.Module):
    def __init__(self, classes, dim, scale=16.0, margin=0.2):
        super().__init__()
        self.centres = nn.Parameter(torch.empty(classes, dim))
        nn.init.xavier_uniform_(self.centres)
        self.scale = scale
        self.cos, self.sin = math.cos(margin), math.sin(margin)

    def forward(self, embedding, labels):
        cosine = F.linear(embedding, F.normalize(self.centres, dim=1))
        sine = (1 - cosine.pow(2)).clamp(min=1e-6).sqrt()
        shifted = cosine * self.cos - sine * self.sin
        own = F.one_hot(labels, len(self.centres)).bool()
        return F.cross_entropy(self.scale * torch.where(own, shifted, cosine), labels)


def faces(people=20, n=1280):
    generator = torch.Generator().manual_seed(3)
    labels = torch.randint(0, people, (n,), generator=generator)
    centres = torch.randn(people, 32, generator=generator)
    return TensorDataset(centres[labels] + 0.7 * torch.randn(n, 32, generator=generator), labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()
    torch.manual_seed(26)
    loader = DataLoader(faces(), batch_size=64, shuffle=True)
    model = Embedder()
    criterion = AngularMargin(20, 16)
    optimizer = torch.optim.SGD(
        [*model.parameters(), *criterion.parameters()], lr=args.lr, momentum=0.9
    )
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[3], gamma=0.1)
    for epoch in range(args.epochs):
        total = 0.0
        for x, labels in loader:
            loss = criterion(model(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        print(f"epoch {epoch}: {total / len(loader):.3f}")


if __name__ == "__main__":
    main()
