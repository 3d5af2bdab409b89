import torch
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(c, c // 2, 1), nn.GroupNorm(2, c // 2), nn.ReLU(), nn.Conv2d(c // 2, c, 3, 1, 1), nn.GroupNorm(2, c))

    def forward(self, x):
        return torch.relu(x + self.net(x))


class Detector(nn.Module):
    def __init__(self, c=16, depth=12, classes=3):
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, c, 3, 2, 1), nn.ReLU(), *[Bottleneck(c) for _ in range(depth)], nn.Conv2d(c, c, 3, 2, 1))
        self.cls_head = nn.Linear(c * 16, classes)
        self.reg_head = nn.Sequential(nn.Linear(c * 16, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x):
        h = torch.relu(self.backbone(x)).flatten(1)
        return self.cls_head(h), self.reg_head(h)
