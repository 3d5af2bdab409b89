"""Classify small synthetic shapes with a CNN, with flips, shifts and noise as augmentation."""
import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    def __init__(self, size, train):
        generator = torch.Generator().manual_seed(1 if train else 2)
        self.labels = torch.randint(0, 4, (size,), generator=generator)
        self.images = 0.2 * torch.randn(size, 1, 16, 16, generator=generator)
        for image, label in zip(self.images, self.labels):
            if label == 0:
                image[0, 4:12, 4:12] += 1
            elif label == 1:
                image[0, 7:9, :] += 1
            elif label == 2:
                image[0, :, 7:9] += 1
            else:
                image[0].diagonal().add_(1)
        self.train = train

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.images[index]
        if self.train:
            if torch.rand(1) < 0.5:
                image = image.flip(-1).flip(-2)
            shift = int(torch.randint(-2, 3, (1,)))
            image = image.roll(shift, dims=-1) + 0.05 * torch.randn_like(image)
        return image, self.labels[index]


def conv_block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(conv_block(1, 12), conv_block(12, 24))
        self.dropout = nn.Dropout(0.3)
        self.fc = nn.Linear(24 * 4 * 4, classes)

    def forward(self, x):
        x = self.features(x).flatten(1)
        return self.fc(self.dropout(x))


def train_epoch(model, loader, optimizer):
    total = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    correct = sum((model(x).argmax(1) == y).sum().item() for x, y in loader)
    return correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    train_loader = DataLoader(Shapes(320, True), batch_size=32, shuffle=True)
    val_loader = DataLoader(Shapes(96, False), batch_size=48)
    model = Net(4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        loss = train_epoch(model, train_loader, optimizer)
        print(f"epoch {epoch} loss {loss:.3f} accuracy {evaluate(model, val_loader):.2f}")


if __name__ == "__main__":
    main()
