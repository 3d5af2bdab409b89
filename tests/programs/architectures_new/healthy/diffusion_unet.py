"""A denoising diffusion network: the noise level enters each block, the last layer starts at zero."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def timestep_embedding(t, width):
    frequency = torch.exp(-math.log(10000) * torch.arange(width // 2) / (width // 2))
    angle = t.float().unsqueeze(1) * frequency
    return torch.cat([angle.cos(), angle.sin()], dim=1)


class Block(nn.Module):
    def __init__(self, inputs, outputs, time):
        super().__init__()
        self.norm1 = nn.GroupNorm(8, inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.time = nn.Linear(time, 2 * outputs)
        self.norm2 = nn.GroupNorm(8, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, x, t):
        y = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.time(F.silu(t))[:, :, None, None].chunk(2, dim=1)
        y = self.norm2(y) * (1 + scale) + shift
        return self.skip(x) + self.conv2(F.silu(y))


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.qkv = nn.Conv2d(width, 3 * width, 1)
        self.out = nn.Conv2d(width, width, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).flatten(2).transpose(1, 2).chunk(3, dim=-1)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(1, 2).view(b, c, h, w))


class DiffusionNet(nn.Module):
    def __init__(self, width=32, time=64):
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.input = nn.Conv2d(3, width, 3, padding=1)
        self.down1, self.down2 = Block(width, width, time), Block(width, 2 * width, time)
        self.middle1, self.attention, self.middle2 = (
            Block(2 * width, 2 * width, time), Attention(2 * width), Block(2 * width, 2 * width, time),
        )
        self.up2, self.up1 = Block(4 * width, width, time), Block(2 * width, width, time)
        self.norm = nn.GroupNorm(8, width)
        self.output = nn.Conv2d(width, 3, 3, padding=1)
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, x, t):
        t = self.time(timestep_embedding(t, self.width))
        a = self.down1(self.input(x), t)
        b = self.down2(F.avg_pool2d(a, 2), t)
        y = self.middle2(self.attention(self.middle1(b, t)), t)
        y = self.up2(torch.cat([y, b], dim=1), t)
        y = self.up1(torch.cat([F.interpolate(y, scale_factor=2), a], dim=1), t)
        return self.output(F.silu(self.norm(y)))


def build_model():
    torch.manual_seed(205)
    return DiffusionNet()


def build_batch():
    torch.manual_seed(206)
    image, noise = torch.randn(4, 3, 32, 32).clamp(-1, 1), torch.randn(4, 3, 32, 32)
    t = torch.randint(0, 1000, (4,))
    alpha = torch.cos(t / 1000 * math.pi / 2).square().view(-1, 1, 1, 1)
    return (alpha.sqrt() * image + (1 - alpha).sqrt() * noise, t), noise


def loss_fn(output, batch):
    return F.mse_loss(output, batch[1])


def build_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=2e-4)
