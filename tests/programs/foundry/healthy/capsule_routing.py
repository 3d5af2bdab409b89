"""Capsules with dynamic routing on small drawings with empty margins."""
import torch
import torch.nn.functional as F
from torch import nn


def squash(s, dim=-1):
    squared = s.pow(2).sum(dim, keepdim=True)
    return squared / (1.0 + squared) * s / torch.sqrt(squared + 1e-8)


class PrimaryCaps(nn.Module):
    def __init__(self, channels, capsules, dim):
        super().__init__()
        self.dim = dim
        self.conv = nn.Conv2d(channels, capsules * dim, 3, stride=2, bias=False)

    def forward(self, x):
        u = self.conv(x)
        b, _, h, w = u.shape
        u = u.view(b, -1, self.dim, h, w).permute(0, 1, 3, 4, 2)
        return squash(u.reshape(b, -1, self.dim))


class DigitCaps(nn.Module):
    def __init__(self, n_in, n_out, dim_in, dim_out, rounds=3):
        super().__init__()
        self.rounds = rounds
        self.weight = nn.Parameter(0.1 * torch.randn(n_out, n_in, dim_out, dim_in))

    def forward(self, u):
        votes = torch.einsum("oide,bie->boid", self.weight, u)
        fixed = votes.detach()
        logits = votes.new_zeros(votes.shape[:3])
        for i in range(self.rounds):
            c = logits.softmax(1).unsqueeze(-1)
            if i == self.rounds - 1:
                return squash((c * votes).sum(2))
            v = squash((c * fixed).sum(2))
            logits = logits + (fixed * v.unsqueeze(2)).sum(-1)


class CapsNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, bias=False)
        self.primary = PrimaryCaps(16, capsules=4, dim=4)
        self.digits = DigitCaps(4 * 6 * 6, classes, 4, 8)

    def forward(self, batch):
        return self.digits(self.primary(F.relu(self.conv(batch[0])))).norm(dim=-1)


def build_model():
    torch.manual_seed(215)
    return CapsNet()


def build_batch():
    g = torch.Generator().manual_seed(216)
    label = torch.randint(0, 4, (12,), generator=g)
    image = torch.zeros(12, 1, 16, 16)
    for row, k in enumerate(label.tolist()):
        patch = torch.rand(6, 6, generator=g) * 0.3
        patch[k] += 1.0
        image[row, 0, 5:11, 5:11] = patch
    return image, label


def loss_fn(output, batch):
    wanted = F.one_hot(batch[1], output.size(1)).float()
    present = wanted * F.relu(0.9 - output).pow(2)
    absent = 0.5 * (1 - wanted) * F.relu(output - 0.1).pow(2)
    return (present + absent).sum(1).mean()
