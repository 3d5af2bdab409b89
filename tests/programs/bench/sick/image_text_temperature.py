"""Contrastive pretraining of an image tower and a text tower."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class ImageTower(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 12, 3, stride=2, padding=1), nn.GELU(),
            nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.GELU(),
        )
        self.proj = nn.Linear(24, dim, bias=False)

    def forward(self, images):
        return self.proj(self.net(images).mean(dim=(2, 3)))


class TextTower(nn.Module):
    def __init__(self, dim, vocab=50):
        super().__init__()
        self.embed = nn.Embedding(vocab, 24)
        self.rnn = nn.GRU(24, 24, batch_first=True)
        self.proj = nn.Linear(24, dim, bias=False)

    def forward(self, ids):
        return self.proj(self.rnn(self.embed(ids))[1][-1])


class CLIP(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.image, self.text = ImageTower(dim), TextTower(dim)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, images, ids):
        i = F.normalize(self.image(images), dim=-1)
        t = F.normalize(self.text(ids), dim=-1)
        scale = min(self.logit_scale.exp().item(), 100)
        return scale * i @ t.T


def build_model():
    torch.manual_seed(21)
    return CLIP()


def build_batch():
    g = torch.Generator().manual_seed(22)
    return torch.randn(10, 3, 16, 16, generator=g), torch.randint(50, (10, 7), generator=g)


def compute_loss(model, batch):
    logits = model(*batch)
    labels = torch.arange(len(logits))
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
