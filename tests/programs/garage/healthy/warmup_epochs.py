import math

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset


def conv_block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)
    )


class Net(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.features = nn.Sequential(conv_block(1, 8), conv_block(8, 16), conv_block(16, 32))
        self.classifier = nn.Linear(32, classes)

    def forward(self, x):
        return self.classifier(self.features(x).mean(dim=(2, 3)))


def warmup_cosine(optimizer, warmup, total):
    def factor(step):
        if step < warmup:
            return step / warmup
        progress = (step - warmup) / max(1, total - warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))

    return LambdaLR(optimizer, factor)


def stripes(count):
    labels = torch.randint(0, 4, (count,))
    grid = torch.arange(16).float()
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    angles = labels * math.pi / 4
    phase = torch.rand(count, 1, 1) * 6
    waves = torch.sin(angles.cos()[:, None, None] * x + angles.sin()[:, None, None] * y + phase)
    return (waves + 0.3 * torch.randn_like(waves))[:, None], labels


class Trainer:
    def __init__(self, model, loader, epochs):
        self.model, self.loader, self.epochs = model, loader, epochs
        self.criterion = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
        total = epochs * len(loader)
        self.scheduler = warmup_cosine(self.optimizer, warmup=total // 5, total=total)

    def run(self):
        for epoch in range(self.epochs):
            total = 0.0
            for images, labels in self.loader:
                self.optimizer.zero_grad()
                loss = self.criterion(self.model(images), labels)
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                total += loss.item()
            print(f"epoch {epoch} loss {total / len(self.loader):.3f}")


if __name__ == "__main__":
    torch.manual_seed(6)
    loader = DataLoader(TensorDataset(*stripes(256)), batch_size=16, shuffle=True)
    Trainer(Net(), loader, epochs=4).run()
