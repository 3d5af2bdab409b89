"""Diffusion transformer with adaptive norms for sequences of coordinates."""
import math

import torch
import torch.nn.functional as F
from torch import nn


def modulate(x, shift, scale):
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class TimeEmbedding(nn.Module):
    def __init__(self, dim, frequencies=16):
        super().__init__()
        self.register_buffer("freqs", torch.exp(-math.log(1e4) * torch.arange(frequencies) / frequencies))
        self.mlp = nn.Sequential(nn.Linear(2 * frequencies, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        args = 1000 * t[:, None] * self.freqs
        return self.mlp(torch.cat([args.cos(), args.sin()], -1))


class DiTBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(dim, elementwise_affine=False)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim))
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))
        nn.init.zeros_(self.ada[-1].weight)
        nn.init.zeros_(self.ada[-1].bias)
        for last in (self.attn.out_proj, self.mlp[-1]):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.ada(c).chunk(6, dim=-1)
        h = modulate(self.norm1(x), shift1, scale1)
        x = x + gate1.unsqueeze(1) * self.attn(h, h, h, need_weights=False)[0]
        h = modulate(self.norm2(x), shift2, scale2)
        return x + gate2.unsqueeze(1) * self.mlp(h)


class DiT(nn.Module):
    def __init__(self, dim=32, heads=4, depth=2):
        super().__init__()
        self.embed, self.time = nn.Linear(2, dim), TimeEmbedding(dim)
        self.pos = nn.Parameter(0.02 * torch.randn(1, 12, dim))
        self.blocks = nn.ModuleList(DiTBlock(dim, heads) for _ in range(depth))
        self.norm, self.out = nn.LayerNorm(dim), nn.Linear(dim, 2)

    def forward(self, batch):
        noisy, t, _ = batch
        x, c = self.embed(noisy) + self.pos, self.time(t)
        for block in self.blocks:
            x = block(x, c)
        return self.out(self.norm(x))


def build_model():
    torch.manual_seed(209)
    return DiT()


def build_batch():
    g = torch.Generator().manual_seed(210)
    clean = torch.randn(16, 12, 2, generator=g).cumsum(1) / 3
    noise = torch.randn(16, 12, 2, generator=g)
    t = torch.rand(16, generator=g)
    angle = 0.5 * math.pi * t[:, None, None]
    return angle.cos() * clean + angle.sin() * noise, t, noise


def loss_fn(output, batch):
    return F.mse_loss(output, batch[2])
