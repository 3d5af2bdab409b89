"""Noise predictor of a diffusion model: residual blocks conditioned on the time step."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def time_features(t, dim):
    freq = torch.exp(-math.log(1000.0) * torch.arange(dim // 2) / (dim // 2))
    angle = t.float()[:, None] * freq[None]
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


class ResBlock(nn.Module):
    def __init__(self, channels, time_dim):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.time_proj = nn.Linear(time_dim, channels)
        self.norm2 = nn.GroupNorm(4, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x, temb):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time_proj(temb)[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(x)))
        return x + h


class Denoiser(nn.Module):
    def __init__(self, channels=16, time_dim=24):
        super().__init__()
        self.time_dim = time_dim
        self.time_mlp = nn.Sequential(nn.Linear(time_dim, time_dim), nn.SiLU(), nn.Linear(time_dim, time_dim))
        self.inp = nn.Conv2d(1, channels, 3, padding=1)
        self.blocks = nn.ModuleList(ResBlock(channels, time_dim) for _ in range(3))
        self.out = nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, noisy, t, noise=None):
        temb = F.silu(self.time_mlp(time_features(t, self.time_dim)))
        h = self.inp(noisy)
        for block in self.blocks:
            h = block(h, temb)
        return self.out(h)


def build_model():
    torch.manual_seed(161)
    return Denoiser()


def build_batch():
    g = torch.Generator().manual_seed(162)
    clean = F.avg_pool2d(torch.randn(8, 1, 12, 12, generator=g), 3, stride=1, padding=1)
    noise = torch.randn(8, 1, 12, 12, generator=g)
    t = torch.randint(0, 1000, (8,), generator=g)
    keep = (torch.cos(t / 1000 * math.pi / 2) ** 2)[:, None, None, None]
    return {"noisy": keep.sqrt() * clean + (1 - keep).sqrt() * noise, "t": t, "noise": noise}


def loss_fn(output, batch):
    return F.mse_loss(output, batch["noise"])
