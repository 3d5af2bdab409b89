import math

import torch
import torch.nn.functional as F
from torch import nn


def sinusoids(t, dim):
    frequencies = torch.exp(-math.log(1000) * torch.arange(dim // 2) / (dim // 2))
    angles = t[:, None].float() * frequencies[None]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Block(nn.Module):
    def __init__(self, width, time_width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, width)
        self.time = nn.Linear(time_width, width)
        self.fc2 = nn.Linear(width, width)

    def forward(self, x, t):
        h = F.silu(self.fc1(self.norm(x)) + self.time(t))
        return x + self.fc2(h)


class Denoiser(nn.Module):
    def __init__(self, width=64, time_width=32, depth=3):
        super().__init__()
        self.time_width = time_width
        self.time_mlp = nn.Sequential(
            nn.Linear(time_width, time_width), nn.SiLU(), nn.Linear(time_width, time_width)
        )
        self.enter = nn.Linear(2, width)
        self.blocks = nn.ModuleList(Block(width, time_width) for _ in range(depth))
        self.leave = nn.Linear(width, 2)

    def forward(self, x, t):
        with torch.no_grad():
            embedding = self.time_mlp(sinusoids(t, self.time_width))
        x = self.enter(x)
        for block in self.blocks:
            x = block(x, embedding)
        return self.leave(x)


class Diffusion:
    def __init__(self, steps=100):
        self.steps = steps
        betas = torch.linspace(1e-4, 0.04, steps)
        self.signal = torch.cumprod(1 - betas, dim=0)

    def loss(self, model, x0):
        t = torch.randint(0, self.steps, (len(x0),))
        noise = torch.randn_like(x0)
        kept = self.signal[t][:, None]
        noisy = kept.sqrt() * x0 + (1 - kept).sqrt() * noise
        return F.mse_loss(model(noisy, t), noise)


def spiral(n):
    r = torch.rand(n).sqrt() * 3
    return torch.stack([r * r.mul(2).cos(), r * r.mul(2).sin()], dim=1) / 2


def main():
    torch.manual_seed(6)
    model, diffusion = Denoiser(), Diffusion()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=20)
    for step in range(120):
        loss = diffusion.loss(model, spiral(128))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warmup.step()
        if step % 30 == 0:
            print(f"{step}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
