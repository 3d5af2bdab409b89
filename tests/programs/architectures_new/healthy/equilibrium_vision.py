"""A deep equilibrium network for image classification."""

import torch
import torch.nn.functional as F
from torch import nn


class Cell(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.first = nn.Conv2d(width, inner, 3, padding=1, bias=False)
        self.second = nn.Conv2d(inner, width, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(8, inner)
        self.norm2 = nn.GroupNorm(8, width)
        self.norm3 = nn.GroupNorm(8, width)
        nn.init.normal_(self.first.weight, std=0.01)
        nn.init.normal_(self.second.weight, std=0.01)

    def forward(self, z, x):
        y = self.norm1(F.relu(self.first(z)))
        return self.norm3(F.relu(z + self.norm2(x + self.second(y))))


class Equilibrium(nn.Module):
    def __init__(self, cell, steps=25):
        super().__init__()
        self.cell = cell
        self.steps = steps

    def forward(self, x):
        with torch.no_grad():
            z = torch.zeros_like(x)
            for _ in range(self.steps):
                z = 0.5 * z + 0.5 * self.cell(z, x)
        return self.cell(z, x)


class EquilibriumClassifier(nn.Module):
    def __init__(self, width=24, classes=10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width))
        self.equilibrium = Equilibrium(Cell(width, 32))
        self.norm = nn.BatchNorm2d(width)
        self.head = nn.Linear(width * 16, classes)

    def forward(self, image):
        x = self.equilibrium(self.stem(image))
        return self.head(F.avg_pool2d(self.norm(x), 8).flatten(1))


def build_model():
    torch.manual_seed(95)
    return EquilibriumClassifier()


def build_batch():
    torch.manual_seed(96)
    return torch.randn(6, 3, 32, 32), torch.randint(0, 10, (6,))


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])


def build_optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3)
