"""Quantisation-aware training of a small CNN: weights are rounded to a few levels in the forward pass."""
import torch
import torch.nn as nn
import torch.nn.functional as F


def quantize(w, levels=8):
    scale = w.detach().abs().max() / levels
    q = torch.round(w / scale) * scale
    return w + (q - w).detach()


class QConv(nn.Conv2d):
    def forward(self, x):
        return F.conv2d(x, quantize(self.weight), self.bias, padding=self.padding)


class QNet(nn.Module):
    def __init__(self, n_classes=4):
        super().__init__()
        self.conv1 = QConv(1, 8, 3, padding=1)
        self.conv2 = QConv(8, 16, 3, padding=1)
        self.fc = nn.Linear(16, n_classes)

    def forward(self, x):
        h = F.max_pool2d(F.relu(self.conv1(x)), 2)
        h = F.relu(self.conv2(h)).mean(dim=(2, 3))
        return self.fc(h)


def build_model():
    torch.manual_seed(581)
    return QNet()


def build_batch():
    g = torch.Generator().manual_seed(582)
    return torch.randn(20, 1, 12, 12, generator=g), torch.randint(0, 4, (20,), generator=g)


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
