"""A deep plain convolutional network for denoising raw sensor images."""

import torch
import torch.nn.functional as F
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, width=24, depth=28):
        super().__init__()
        layers = [nn.Conv2d(1, width, 3, padding=1), nn.ReLU()]
        for _ in range(depth):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
        layers.append(nn.Conv2d(width, 1, 3, padding=1))
        self.body = nn.Sequential(*layers)
        self.apply(self.initialize)

    def initialize(self, module):
        if isinstance(module, nn.Conv2d):
            nn.init.normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)

    def forward(self, x):
        return self.body(x)


def build_model():
    torch.manual_seed(37)
    return Denoiser()


def build_batch():
    torch.manual_seed(38)
    clean = F.interpolate(torch.randn(4, 1, 8, 8), scale_factor=4, mode="bilinear")
    return clean + 0.2 * torch.randn_like(clean), clean


def loss_fn(output, batch):
    return F.l1_loss(output, batch[1])
