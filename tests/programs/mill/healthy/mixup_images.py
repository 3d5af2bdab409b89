import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Mixup:
    classes: int
    alpha: float = 0.4
    smoothing: float = 0.1
    probability: float = 1.0

    def one_hot(self, labels):
        off = self.smoothing / self.classes
        return F.one_hot(labels, self.classes) * (1 - self.smoothing) + off

    def share(self):
        if torch.rand(()) > self.probability:
            return 1.0
        return torch.distributions.Beta(self.alpha, self.alpha).sample().item()

    def targets(self, labels, share):
        one, other = self.one_hot(labels), self.one_hot(labels.flip(0))
        return share * one + (1 - share) * other

    def __call__(self, images, labels):
        share = self.share()
        mixed = share * images + (1 - share) * images.flip(0)
        return mixed, self.targets(labels, share)


class SoftTargetCrossEntropy(nn.Module):
    def forward(self, logits, targets):
        return F.cross_entropy(logits, targets)


class ConvBlock(nn.Module):
    def __init__(self, width, drop_path):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.norm = nn.GroupNorm(1, width)
        self.grow = nn.Conv2d(width, 3 * width, 1)
        self.shrink = nn.Conv2d(3 * width, width, 1)
        self.gamma = nn.Parameter(torch.full((width, 1, 1), 0.1))
        self.drop_path = drop_path

    def forward(self, x):
        branch = self.shrink(F.gelu(self.grow(self.norm(self.depthwise(x)))))
        if self.training and self.drop_path > 0:
            keep = torch.rand(len(x), 1, 1, 1) >= self.drop_path
            branch = branch * keep / (1 - self.drop_path)
        return x + self.gamma * branch


class ConvNeXt(nn.Module):
    def __init__(self, classes, width=24, depth=3):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        rates = torch.linspace(0, 0.2, depth).tolist()
        self.blocks = nn.Sequential(*[ConvBlock(width, rate) for rate in rates])
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def draw(count, classes):
    labels = torch.randint(0, classes, (count,))
    images = 0.5 * torch.randn(count, 3, 16, 16)
    for index, label in enumerate(labels.tolist()):
        images[index, label % 3, 4 * (label // 3) : 4 * (label // 3) + 4] += 1.0
    return TensorDataset(images, labels)


def train_one_epoch(model, loader, optimizer, mixup, criterion):
    model.train()
    losses = []
    for images, labels in loader:
        images, targets = mixup(images, labels)
        loss = criterion(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mixup", type=float, default=0.4)
    parser.add_argument("--smoothing", type=float, default=0.1)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(15)
    model = ConvNeXt(6)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.02)
    mixup = Mixup(6, args.mixup, args.smoothing)
    loader = DataLoader(draw(240, 6), batch_size=16, shuffle=True, drop_last=True)
    for epoch in range(args.epochs):
        loss = train_one_epoch(model, loader, optimizer, mixup, SoftTargetCrossEntropy())
        print(epoch, loss)


if __name__ == "__main__":
    main()
