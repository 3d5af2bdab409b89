import argparse

import torch
from torch import nn


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--updates", type=int, default=90)
    ap.add_argument("--accum", type=int, default=3)
    ap.add_argument("--warmup", type=int, default=5)
    ap.add_argument("--lr", type=float, default=5e-3)
    ap.add_argument("--seed", type=int, default=21)
    return ap.parse_args([])


class ConvNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        )
        self.classifier = nn.Linear(64, classes)

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def make_batch(n, g):
    y = torch.randint(0, 4, (n,), generator=g)
    x = 0.8 * torch.randn(n, 1, 12, 12, generator=g)
    for i, c in enumerate(y.tolist()):
        r, q = divmod(c, 2)
        x[i, 0, 6 * r + 1:6 * r + 5, 6 * q + 1:6 * q + 5] += 0.7
    return x, y


def linear_schedule(optimizer, warmup, total):
    def factor(k):
        if k < warmup:
            return (k + 1) / warmup
        return max(0.0, (total - k) / (total - warmup))
    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def main():
    args = parse()
    torch.manual_seed(args.seed)
    g = torch.Generator().manual_seed(args.seed + 1)
    net = ConvNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr * 10, momentum=0.9)
    scheduler = linear_schedule(optimizer, args.warmup, args.updates)
    criterion = nn.CrossEntropyLoss()
    for update in range(args.updates):
        optimizer.zero_grad()
        total = 0.0
        for _ in range(args.accum):
            x, y = make_batch(16, g)
            loss = criterion(net(x), y) / args.accum
            loss.backward()
            total += loss.item()
        optimizer.step()
        scheduler.step()
        if update % 15 == 0:
            print(update, round(total, 4), scheduler.get_last_lr()[0])


main()
