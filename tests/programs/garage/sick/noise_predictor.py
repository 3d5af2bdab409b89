import copy
import math

import torch
from torch import nn


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        half = dim // 2
        self.register_buffer("frequencies", torch.exp(-math.log(1e4) * torch.arange(half) / half))

    def forward(self, t):
        angles = t[:, None].float() * self.frequencies
        return torch.cat([angles.sin(), angles.cos()], dim=-1)


class Denoiser(nn.Module):
    def __init__(self, dim=2, width=64):
        super().__init__()
        self.time = nn.Sequential(TimeEmbedding(32), nn.Linear(32, width), nn.SiLU())
        self.inner = nn.Linear(dim, width)
        self.middle = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.outer = nn.Linear(width, dim)

    def forward(self, x, t):
        return self.outer(self.middle(self.inner(x) + self.time(t)))


class Diffusion:
    def __init__(self, steps=100):
        beta = torch.linspace(1e-4, 0.05, steps)
        self.steps = steps
        self.alpha_bar = torch.cumprod(1 - beta, dim=0)

    def noisy(self, x, t, noise):
        a = self.alpha_bar[t][:, None]
        return a.sqrt() * x + (1 - a).sqrt() * noise

    def loss(self, model, x):
        t = torch.randint(0, self.steps, (x.size(0),))
        noise = torch.randn_like(x)
        return nn.functional.mse_loss(model(self.noisy(x, t, noise), t), noise)


class ModelEMA:
    def __init__(self, model, decay=0.999):
        self.decay = decay
        self.updates = 0
        self.shadow = copy.deepcopy(model).eval()
        for p in self.shadow.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        self.updates += 1
        d = min(self.decay, (1 + self.updates) / (4 + self.updates))
        for average, p in zip(self.shadow.parameters(), model.parameters()):
            average.copy_((1 - d) * average + d * p)


def spiral(count):
    t = torch.rand(count) * 3 * math.pi
    return torch.stack([t.cos(), t.sin()], dim=1) * t[:, None] / 5 + 0.03 * torch.randn(count, 2)


def main(iterations=80):
    torch.manual_seed(22)
    model, diffusion = Denoiser(), Diffusion()
    ema = ModelEMA(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for i in range(iterations):
        loss = diffusion.loss(model, spiral(128))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        ema.update(model)
        if i % 20 == 0:
            with torch.no_grad():
                held = diffusion.loss(ema.shadow, spiral(128))
            print(f"{i}: {loss.item():.4f} average {held.item():.4f}")


if __name__ == "__main__":
    main()
