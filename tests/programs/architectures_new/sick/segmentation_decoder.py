"""Segments organs in slices with a U-shaped network."""

import torch
import torch.nn.functional as F
from torch import nn


class Convolution(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.LeakyReLU(0.01, inplace=True),
        )


class Down(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.first = Convolution(inputs, outputs)
        self.second = Convolution(outputs, outputs)

    def forward(self, x):
        return self.second(self.first(x))


class Up(nn.Module):
    def __init__(self, inputs, skip, outputs):
        super().__init__()
        self.up = nn.ConvTranspose2d(inputs, skip, 2, stride=2)
        self.first = Convolution(2 * skip, outputs)
        self.second = Convolution(2 * skip, outputs)

    def forward(self, x, skip):
        x = torch.cat([self.up(x), skip], dim=1)
        y = self.first(x)
        y = self.second(x)
        return y


class Segmenter(nn.Module):
    def __init__(self, classes=5, widths=(8, 16, 32, 64)):
        super().__init__()
        sizes = (1, *widths)
        self.down = nn.ModuleList([Down(a, b) for a, b in zip(sizes, sizes[1:])])
        self.up = nn.ModuleList(
            [Up(b, a, a) for a, b in zip(widths[::-1][1:], widths[::-1])]
        )
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x):
        skips = []
        for stage in self.down:
            x = stage(x if not skips else F.max_pool2d(x, 2))
            skips.append(x)
        for stage, skip in zip(self.up, skips[-2::-1]):
            x = stage(x, skip)
        return self.head(x)


def build_model():
    torch.manual_seed(51)
    return Segmenter()


def build_batch():
    torch.manual_seed(52)
    return torch.randn(3, 1, 64, 64), torch.randint(0, 5, (3, 64, 64))


def loss_fn(output, batch):
    probability = output.softmax(dim=1)
    target = F.one_hot(batch[1], 5).permute(0, 3, 1, 2).float()
    overlap = 2 * (probability * target).sum(dim=(2, 3))
    total = (probability + target).sum(dim=(2, 3)) + 1e-5
    return 1 - (overlap / total).mean() + F.cross_entropy(output, batch[1])


def build_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.99, nesterov=True)
