import math

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 100


def sinusoid(t, dim):
    half = dim // 2
    freqs = torch.exp(-math.log(1000.0) * torch.arange(half) / half)
    angles = t[:, None].float() * freqs[None] * 1000
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class ResBlock(nn.Module):
    def __init__(self, dim, time_dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.inner = nn.Linear(dim, dim)
        self.time = nn.Linear(time_dim, dim)
        self.outer = nn.Linear(dim, dim)

    def forward(self, x, temb):
        h = F.silu(self.inner(self.norm(x)) + self.time(temb))
        return x + self.outer(h)


class Denoiser(nn.Module):
    def __init__(self, data=2, dim=48, time_dim=32):
        super().__init__()
        self.time_dim = time_dim
        self.time_mlp = nn.Sequential(nn.Linear(time_dim, time_dim), nn.SiLU(), nn.Linear(time_dim, time_dim))
        self.stem = nn.Linear(data, dim)
        self.blocks = nn.ModuleList(ResBlock(dim, time_dim) for _ in range(3))
        self.out = nn.Linear(dim, data)

    def forward(self, x, t):
        temb = self.time_mlp(sinusoid(t / STEPS, self.time_dim))
        h = self.stem(x)
        for block in self.blocks:
            h = block(h, temb)
        return self.out(h)


def build_model():
    torch.manual_seed(37)
    return Denoiser()


def build_batch():
    g = torch.Generator().manual_seed(38)
    theta = torch.rand(128, generator=g) * 2 * math.pi
    x0 = torch.stack([theta.cos(), theta.sin()], 1)
    t = torch.randint(0, STEPS, (128,), generator=g)
    noise = torch.randn(128, 2, generator=g)
    return {"x0": x0, "t": t, "noise": noise}


def compute_loss(model, batch):
    betas = torch.linspace(1e-3, 0.05, STEPS)
    keep = torch.cumprod(1 - betas, 0)[batch["t"]].unsqueeze(1)
    noisy = keep.sqrt() * batch["x0"] + (1 - keep).sqrt() * batch["noise"]
    return F.mse_loss(model(noisy, batch["t"]), batch["noise"])
