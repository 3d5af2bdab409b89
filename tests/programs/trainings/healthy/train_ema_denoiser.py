"""Denoiser for 2-d spirals with an exponential moving average used for validation."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Averager:
    def __init__(self, params, decay=0.98):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in params]
        self.backup = None

    @torch.no_grad()
    def update(self, params):
        for s, p in zip(self.shadow, params):
            s.lerp_(p, 1 - self.decay)

    def store(self, params):
        self.backup = [p.detach().clone() for p in params]

    @torch.no_grad()
    def copy_to(self, params):
        for s, p in zip(self.shadow, params):
            p.copy_(s)

    @torch.no_grad()
    def restore(self, params):
        for b, p in zip(self.backup, params):
            p.copy_(b)
        self.backup = None


def spiral(n, g):
    t = torch.rand(n, generator=g) * 3 * math.pi
    r = 0.2 + t / (3 * math.pi)
    return torch.stack([r * torch.cos(t), r * torch.sin(t)], dim=1)


class Trainer:
    def __init__(self):
        torch.manual_seed(11)
        self.g = torch.Generator().manual_seed(12)
        self.model = nn.Sequential(nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.ema = Averager(self.model.parameters())

    def loss(self, x, g):
        sigma = 0.05 + 0.5 * torch.rand(len(x), 1, generator=g)
        eps = torch.randn(x.shape, generator=g)
        out = self.model(torch.cat([x + sigma * eps, sigma], dim=1))
        return F.mse_loss(out, eps)

    @torch.no_grad()
    def validate(self):
        g = torch.Generator().manual_seed(99)
        self.ema.store(self.model.parameters())
        self.ema.copy_to(self.model.parameters())
        value = self.loss(spiral(512, g), g).item()
        self.ema.restore(self.model.parameters())
        return value

    def fit(self, steps=150, every=15):
        for step in range(1, steps + 1):
            loss = self.loss(spiral(128, self.g), self.g)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.ema.update(self.model.parameters())
            if step % every == 0:
                print(f"{step:4d} train {loss.item():.4f} val(ema) {self.validate():.4f}")


if __name__ == "__main__":
    Trainer().fit()
