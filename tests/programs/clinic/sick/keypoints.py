import torch
import torch.nn.functional as F
from torch import nn

SIZE = 16


class Hourglass(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        self.down = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.middle = nn.Conv2d(width, width, 3, padding=1)
        self.up = nn.ConvTranspose2d(width, width, 2, stride=2)

    def forward(self, x):
        skip = F.leaky_relu(self.enter(x))
        x = F.leaky_relu(self.down(skip))
        x = F.leaky_relu(self.middle(x))
        return skip + self.up(x)


def soft_positions(heat):
    weights = heat.flatten(2).softmax(dim=2).view_as(heat)
    axis = torch.arange(SIZE) / SIZE
    x = (weights.sum(dim=2) * axis).sum(dim=2)
    y = (weights.sum(dim=3) * axis).sum(dim=2)
    return torch.stack([x, y], dim=2)


def hard_positions(heat):
    index = heat.flatten(2).argmax(dim=2)
    return torch.stack([index % SIZE, index // SIZE], dim=2) / SIZE


class PoseNet(nn.Module):
    def __init__(self, points=5, width=16):
        super().__init__()
        self.hourglass = Hourglass(width)
        self.heat = nn.Conv2d(width, points, 1)
        self.confidence = nn.Linear(width, points)

    def forward(self, images):
        features = self.hourglass(images)
        heat = self.heat(features)
        positions = hard_positions(heat)
        return positions, self.confidence(features.mean(dim=(2, 3)))


def build_model():
    torch.manual_seed(38)
    return PoseNet()


def build_batch():
    generator = torch.Generator().manual_seed(39)
    images = torch.rand(8, 1, SIZE, SIZE, generator=generator)
    positions = torch.rand(8, 5, 2, generator=generator)
    visible = (torch.rand(8, 5, generator=generator) < 0.8).float()
    return images, (positions, visible)


def loss_fn(output, batch):
    positions, confidence = output
    expected, visible = batch[1]
    distance = (positions - expected).pow(2).sum(dim=2)
    located = (visible * distance).sum() / visible.sum()
    return located + F.binary_cross_entropy_with_logits(confidence, visible)
