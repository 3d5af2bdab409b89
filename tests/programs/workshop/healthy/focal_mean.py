import torch
import torch.nn as nn
import torch.nn.functional as F


class FocalLoss(nn.Module):
    def __init__(self, gamma=2.0, alpha=0.25):
        super().__init__()
        self.gamma, self.alpha = gamma, alpha

    def forward(self, logits, target):
        ce = F.cross_entropy(logits, target, reduction="none")
        pt = torch.exp(-ce)
        return (self.alpha * (1 - pt) ** self.gamma * ce).mean()


class Detector(nn.Module):
    def __init__(self, n_classes=5):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        )
        self.cls = nn.Conv2d(16, n_classes, 1)

    def forward(self, x):
        return self.cls(self.backbone(x)).flatten(2).transpose(1, 2)


def build_model():
    torch.manual_seed(0)
    return Detector()


def build_batch():
    torch.manual_seed(1)
    target = torch.zeros(4, 64, dtype=torch.long)
    target[torch.rand(4, 64) < 0.05] = 3
    return torch.randn(4, 3, 32, 32), target


def loss_fn(output, batch):
    return FocalLoss()(output.reshape(-1, 5), batch[1].reshape(-1))
