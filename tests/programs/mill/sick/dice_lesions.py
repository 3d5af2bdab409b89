from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class LossConfig:
    bce: float = 1.0
    dice: float = 1.0
    smooth: float = 1.0
    threshold: float = 0.5


@dataclass
class Config:
    size: int = 24
    width: int = 12
    batch_size: int = 8
    epochs: int = 2
    loss: LossConfig = field(default_factory=LossConfig)


class Lesions(Dataset):
    def __init__(self, config, count):
        self.config = config
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        size = self.config.size
        centre = torch.randint(5, size - 5, (2, 1, 1), generator=generator)
        radius = torch.randint(2, 5, (), generator=generator)
        grid = torch.stack(torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij"))
        mask = ((grid - centre).pow(2).sum(0) <= radius**2).float()
        image = mask + 0.6 * torch.randn(size, size, generator=generator)
        return image.unsqueeze(0), mask.unsqueeze(0)


class SegNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.enter = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.InstanceNorm2d(width))
        self.down = nn.Sequential(
            nn.Conv2d(width, 2 * width, 3, 2, 1), nn.InstanceNorm2d(2 * width), nn.LeakyReLU()
        )
        self.up = nn.ConvTranspose2d(2 * width, width, 4, 2, 1)
        self.head = nn.Conv2d(2 * width, 1, 3, padding=1)

    def forward(self, x):
        wide = F.leaky_relu(self.enter(x))
        return self.head(torch.cat([wide, F.leaky_relu(self.up(self.down(wide)))], dim=1))


class DiceLoss(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config

    def prepare(self, logits):
        probabilities = logits.sigmoid()
        return (probabilities > self.config.threshold).float()

    def forward(self, logits, masks):
        predicted, truth = self.prepare(logits).flatten(1), masks.flatten(1)
        overlap = (predicted * truth).sum(1)
        total = predicted.sum(1) + truth.sum(1)
        score = (2 * overlap + self.config.smooth) / (total + self.config.smooth)
        return 1 - score.mean()


class ComboLoss(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.dice = DiceLoss(config)

    def forward(self, logits, masks):
        pixel = F.binary_cross_entropy_with_logits(logits, masks)
        return self.config.bce * pixel + self.config.dice * self.dice(logits, masks)


def main():
    torch.manual_seed(18)
    config = Config()
    model = SegNet(config.width)
    criterion = ComboLoss(config.loss)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=24, power=0.9)
    loader = DataLoader(Lesions(config, 96), config.batch_size, shuffle=True)
    for epoch in range(config.epochs):
        for images, masks in loader:
            loss = criterion(model(images), masks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
