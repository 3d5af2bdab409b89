"""Keyword spotting on synthetic spectrograms with accumulated gradients."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ACCUM = 4


def spectrograms(n, classes=5):
    g = torch.Generator().manual_seed(18)
    label = torch.randint(0, classes, (n,), generator=g)
    x = 0.4 * torch.randn(n, 1, 20, 30, generator=g)
    for row, k in enumerate(label.tolist()):
        start = int(torch.randint(0, 20, (1,), generator=g))
        x[row, 0, 3 * k : 3 * k + 4, start : start + 8] += 1.5
    return TensorDataset(x, label)


class Separable(nn.Module):
    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.depth = nn.Conv2d(n_in, n_in, 3, stride, 1, groups=n_in)
        self.point = nn.Conv2d(n_in, n_out, 1)
        self.norm = nn.GroupNorm(4, n_out)

    def forward(self, x):
        return F.hardswish(self.norm(self.point(self.depth(x))))


class KeywordNet(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1)
        self.body = nn.Sequential(Separable(16, 24, 2), Separable(24, 32, 2))
        self.head = nn.Linear(32 * 5, classes)

    def forward(self, x):
        return self.head(self.body(F.hardswish(self.stem(x))).mean(3).flatten(1))


def run_epoch(model, loader, optimizer):
    total = 0.0
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x), y)
        (loss / ACCUM).backward()
        if (i + 1) % ACCUM == 0:
            optimizer.step()
            optimizer.zero_grad()
        total += loss.item()
    return total / len(loader)


def main():
    torch.manual_seed(118)
    loader = DataLoader(spectrograms(192), batch_size=16, shuffle=True)
    model = KeywordNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(4):
        print(f"epoch {epoch} loss {run_epoch(model, loader, optimizer):.4f}")


if __name__ == "__main__":
    main()
