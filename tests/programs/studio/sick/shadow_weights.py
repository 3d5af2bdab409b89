"""Denoiser training with an exponential moving average of the weights."""

import argparse
import copy

import torch
from torch import nn
from torch.nn import functional as F


class ExponentialMovingAverage:
    def __init__(self, model, decay):
        self.shadow = [p.detach().clone() for p in model.parameters()]
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        one_minus_decay = 1.0 - self.decay
        for shadow, param in zip(self.shadow, model.parameters(), strict=True):
            gap = shadow - param
            shadow.add_(gap * one_minus_decay)

    def copy_to(self, model):
        with torch.no_grad():
            for shadow, param in zip(self.shadow, model.parameters(), strict=True):
                param.copy_(shadow)


class Denoiser(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.out = nn.Linear(width, 2)

    def forward(self, x, t):
        return self.out(self.inner(torch.cat([x, t], dim=1)))


def sample(n):
    angle = torch.rand(n) * 6.2832
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2)


def noised(clean):
    t = torch.rand(len(clean), 1)
    noise = torch.randn_like(clean)
    return (1 - t) * clean + t * noise, t, noise - clean


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--ema-decay", type=float, default=0.95)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Denoiser()
    ema = ExponentialMovingAverage(model, args.ema_decay)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(args.steps):
        x, t, target = noised(sample(128))
        loss = F.mse_loss(model(x, t), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)
    averaged = copy.deepcopy(model)
    ema.copy_to(averaged)
    with torch.no_grad():
        x, t, target = noised(sample(512))
        print("model", F.mse_loss(model(x, t), target).item())
        print("average", F.mse_loss(averaged(x, t), target).item())


if __name__ == "__main__":
    main()
