"""Counts people in a crowd by density maps of three scales that are mixed by learned weights."""

import torch
import torch.nn.functional as F
from torch import nn


class Branch(nn.Module):
    def __init__(self, kernel, width=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, kernel, padding=kernel // 2),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, kernel, padding=kernel // 2),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
        )
        self.density = nn.Conv2d(2 * width, 1, 1)
        self.confidence = nn.Linear(2 * width, 1)

    def forward(self, image):
        x = self.features(image)
        return self.density(x), self.confidence(x.mean(dim=(0, 2, 3)))


class CrowdCounter(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList([Branch(kernel) for kernel in (3, 5, 9)])

    def forward(self, image):
        densities, confidences = zip(*[branch(image) for branch in self.branches])
        weight = torch.cat(confidences).softmax(dim=0)
        return sum(w * density for w, density in zip(weight, densities))


def build_model():
    torch.manual_seed(49)
    return CrowdCounter()


def build_batch():
    torch.manual_seed(50)
    return torch.randn(4, 3, 48, 48), torch.rand(4, 1, 24, 24).pow(8)


def loss_fn(output, batch):
    return F.mse_loss(output, batch[1])
