"""A 110-layer residual network; each residual branch starts at zero."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        nn.init.zeros_(self.norm2.weight)
        self.skip = nn.Sequential()
        if stride > 1:
            self.skip = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(self.skip(x) + y)


class ResidualNetwork(nn.Module):
    def __init__(self, classes=10, count=18):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        layers, inputs = [], 8
        for width in (8, 16, 32):
            for i in range(count):
                layers.append(Block(inputs, width, 2 if i == 0 and width > 8 else 1))
                inputs = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean(dim=(2, 3)))


def build_model():
    torch.manual_seed(203)
    return ResidualNetwork()


def build_batch():
    torch.manual_seed(204)
    return torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1], label_smoothing=0.1)


def build_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
