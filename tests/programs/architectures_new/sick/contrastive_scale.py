"""A dual encoder of images and captions that is trained by contrast."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class TextEncoder(nn.Module):
    def __init__(self, vocabulary=300, width=64, depth=4):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.randn(16, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.positions[: tokens.shape[1]]
        return self.norm(self.layers(x)).mean(dim=1)


class ImageEncoder(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        sizes = (3, 16, 32, width)
        self.layers = nn.Sequential(
            *[
                nn.Sequential(
                    nn.Conv2d(a, b, 3, stride=2, padding=1, bias=False),
                    nn.BatchNorm2d(b),
                    nn.ReLU(),
                )
                for a, b in zip(sizes, sizes[1:])
            ]
        )

    def forward(self, images):
        return self.layers(images).mean(dim=(2, 3))


class DualEncoder(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.image = ImageEncoder(width)
        self.text = TextEncoder(width=width)
        self.image_projection = nn.Linear(width, 32, bias=False)
        self.text_projection = nn.Linear(width, 32, bias=False)
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, images, tokens):
        image = F.normalize(self.image_projection(self.image(images)), dim=-1)
        text = F.normalize(self.text_projection(self.text(tokens)), dim=-1)
        scale = self.log_scale.exp().clamp(max=100).item()
        return scale * image @ text.T


def build_model():
    torch.manual_seed(47)
    return DualEncoder()


def build_batch():
    torch.manual_seed(48)
    return (torch.randn(12, 3, 32, 32), torch.randint(0, 300, (12, 10))), torch.arange(12)


def loss_fn(output, batch):
    target = batch[1]
    return (F.cross_entropy(output, target) + F.cross_entropy(output.T, target)) / 2


def build_optimizer(model):
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    return torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest}], lr=5e-4)
