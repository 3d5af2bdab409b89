"""Rates image quality: a hypernetwork makes the rating layers for each image."""

import torch
import torch.nn.functional as F
from torch import nn


class Rater(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.layers = [(nn.Parameter(w), nn.Parameter(b)) for w, b in weights]

    def forward(self, x):
        for number, (weight, bias) in enumerate(self.layers):
            x = torch.einsum("bi,boi->bo", x, weight) + bias
            if number + 1 < len(self.layers):
                x = torch.sigmoid(x)
        return x.squeeze(-1)


class QualityNet(nn.Module):
    def __init__(self, sizes=(24, 16, 8, 1), width=48):
        super().__init__()
        self.sizes = sizes
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, width, 3, stride=2, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
        )
        self.content = nn.Linear(width, sizes[0])
        pairs = list(zip(sizes, sizes[1:]))
        self.weights = nn.ModuleList([nn.Linear(width, a * b) for a, b in pairs])
        self.biases = nn.ModuleList([nn.Linear(width, b) for _, b in pairs])

    def forward(self, image):
        features = self.body(image).mean(dim=(2, 3))
        made = []
        for number, (make_weight, make_bias) in enumerate(zip(self.weights, self.biases)):
            shape = (-1, self.sizes[number + 1], self.sizes[number])
            made.append((make_weight(features).view(shape), make_bias(features)))
        return Rater(made)(self.content(features))


def build_model():
    torch.manual_seed(73)
    return QualityNet()


def build_batch():
    torch.manual_seed(74)
    return torch.randn(8, 3, 48, 48), torch.rand(8)


def loss_fn(output, batch):
    return F.l1_loss(output, batch[1])


def build_optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=2e-4)
