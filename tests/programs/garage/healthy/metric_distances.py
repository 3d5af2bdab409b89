import torch
from torch import nn, optim


class EmbeddingNet(nn.Module):
    def __init__(self, features=16, dim=8):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(features, 32), nn.PReLU(), nn.Linear(32, dim))

    def forward(self, x):
        return self.net(x)


def pairwise(z):
    square = (z[:, None] - z[None, :]).pow(2).sum(dim=-1)
    return (square + 1e-12).sqrt()


class PairLoss(nn.Module):
    """Pulls together pairs of one class, and pushes others apart up to a margin."""

    def __init__(self, margin=1.0):
        super().__init__()
        self.margin = margin

    def forward(self, z, labels):
        distance = pairwise(z)
        same = labels[:, None] == labels[None, :]
        other = torch.eye(len(z), dtype=torch.bool).logical_not()
        attract = distance.pow(2)
        repel = (self.margin - distance).clamp(min=0).pow(2)
        terms = torch.where(same, attract, repel)
        return (terms * other).sum() / other.sum()


class Clusters:
    def __init__(self, classes=6, features=16):
        self.centres = torch.randn(classes, features)

    def batch(self, size):
        labels = torch.randint(0, len(self.centres), (size,))
        return self.centres[labels] + 0.5 * torch.randn(size, self.centres.size(1)), labels


def nearest_accuracy(model, x, labels):
    with torch.no_grad():
        distance = torch.cdist(*(2 * [model(x)]))
        distance.fill_diagonal_(float("inf"))
        return (labels[distance.argmin(dim=1)] == labels).float().mean().item()


def main():
    torch.manual_seed(30)
    data, model, criterion = Clusters(), EmbeddingNet(), PairLoss()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)
    for step in range(30):
        x, labels = data.batch(32)
        loss = criterion(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"{step} loss {loss.item():.4f} accuracy {nearest_accuracy(model, x, labels):.2f}")


if __name__ == "__main__":
    main()
