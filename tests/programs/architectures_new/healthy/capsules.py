"""Capsules with dynamic routing: the agreement is computed on detached predictions."""

import torch
import torch.nn.functional as F
from torch import nn


def squash(x):
    squared = x.square().sum(dim=-1, keepdim=True)
    return squared / (1 + squared) * x * torch.rsqrt(squared + 1e-8)


class CapsuleNet(nn.Module):
    def __init__(self, classes=6, primary=8, size=10):
        super().__init__()
        self.conv = nn.Conv2d(1, 32, 7)
        self.primary = nn.Conv2d(32, 8 * primary, 7, stride=2)
        self.weight = nn.Parameter(torch.randn(classes, primary * 64, size, 8) * 0.05)
        self.decoder = nn.Sequential(nn.Linear(size * classes, 64), nn.ReLU(), nn.Linear(64, 784), nn.Sigmoid())

    def forward(self, image):
        x = self.primary(F.relu(self.conv(image)))
        u = squash(x.view(len(x), -1, 8, 8, 8).movedim(2, -1).flatten(1, 3))
        votes = torch.einsum("cnij,bnj->bcni", self.weight, u)
        fixed = votes.detach()
        score = torch.zeros(votes.shape[:3])
        for step in range(3):
            coupling = score.softmax(dim=1).unsqueeze(-1)
            if step < 2:
                capsule = squash((coupling * fixed).sum(dim=2))
                score = score + torch.einsum("bcni,bci->bcn", fixed, capsule)
            else:
                capsule = squash((coupling * votes).sum(dim=2))
        length = (capsule.square().sum(dim=-1) + 1e-8).sqrt()
        mask = F.one_hot(length.argmax(dim=1), length.shape[1]).unsqueeze(-1)
        return length, self.decoder((capsule * mask).flatten(1))


def build_model():
    torch.manual_seed(219)
    return CapsuleNet()


def build_batch():
    torch.manual_seed(220)
    image = torch.rand(6, 1, 28, 28)
    return image, (torch.randint(0, 6, (6,)), image)


def loss_fn(output, batch):
    length, reconstruction = output
    target = F.one_hot(batch[1][0], length.shape[1]).float()
    margin = target * F.relu(0.9 - length).square() + 0.5 * (1 - target) * F.relu(length - 0.1).square()
    return margin.sum(dim=1).mean() + 0.0005 * 784 * F.mse_loss(reconstruction, batch[1][1].flatten(1))
