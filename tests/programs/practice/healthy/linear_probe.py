import torch
import torch.nn.functional as F
from torch import nn


def backbone():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
    )


class Probe(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.features = features
        self.classifier = nn.Linear(64, classes)
        self.features.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.features.eval()
        return self

    def forward(self, x):
        with torch.no_grad():
            h = self.features(x)
        return self.classifier(h)


def batch(n=32):
    y = torch.randint(0, 4, (n,))
    x = 0.5 * torch.randn(n, 1, 12, 12)
    for image, label in zip(x, y):
        row, col = divmod(int(label), 2)
        image[0, 6 * row : 6 * row + 6, 6 * col : 6 * col + 6] += 1
    return x, y


def main():
    torch.manual_seed(0)
    features = backbone()
    with torch.no_grad():
        for _ in range(10):
            features(batch()[0])
    model = Probe(features, 4)
    optimizer = torch.optim.SGD(model.classifier.parameters(), lr=0.5)
    for epoch in range(3):
        model.train()
        for _ in range(20):
            x, y = batch()
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        x, y = batch(128)
        print(epoch, loss.item(), (model(x).argmax(1) == y).float().mean().item())


if __name__ == "__main__":
    main()
