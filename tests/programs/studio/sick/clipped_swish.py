"""An image classifier with a memory-efficient activation."""

import torch
from torch import nn
from torch.nn import functional as F


class SwishFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad_output * s


class MemoryEfficientSwish(nn.Module):
    def forward(self, x):
        return SwishFunction.apply(x)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, reduced):
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, reduced, 1), nn.Conv2d(reduced, channels, 1)
        self.act = MemoryEfficientSwish()

    def forward(self, x):
        return x * self.expand(self.act(self.reduce(x.mean((2, 3), keepdim=True)))).sigmoid()


class MBConv(nn.Module):
    def __init__(self, inputs, outputs, ratio=2):
        super().__init__()
        hidden = inputs * ratio
        self.conv = nn.Sequential(
            nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), MemoryEfficientSwish(),
            nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden, bias=False), nn.BatchNorm2d(hidden), MemoryEfficientSwish(),
        )
        self.squeeze = SqueezeExcite(hidden, 4)
        self.project = nn.Sequential(nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return self.project(self.squeeze(self.conv(x)))


def build_model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), MBConv(8, 12), nn.AvgPool2d(2), MBConv(12, 16),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
    )


def build_batch():
    torch.manual_seed(1)
    return torch.randn(8, 3, 12, 12), torch.randint(0, 4, (8,))


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
