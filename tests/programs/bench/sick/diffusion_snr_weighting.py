"""Denoising diffusion of two moons with signal-to-noise weights."""

import math

import torch
from torch import nn


class CosineSchedule:
    def __init__(self, s=0.008):
        self.s = s

    def log_snr(self, t):
        angle = (t + self.s) / (1 + self.s) * math.pi / 2
        return -2 * torch.log(torch.tan(angle).clamp(min=1e-4))

    def weight(self, log_snr):
        return torch.sigmoid(2.0 - log_snr) + 0.05


class Denoiser(nn.Module):
    def __init__(self, dim=2, hidden=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim + 1, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(),
            nn.Linear(hidden, dim),
        )

    def forward(self, x, log_snr):
        return self.net(torch.cat([x, log_snr / 10], dim=1))


def moons(n):
    theta = math.pi * torch.rand(n)
    side = (torch.rand(n) > 0.5).float()
    x = torch.cos(theta) * (1 - 2 * side) + side
    y = torch.sin(theta) * (1 - 2 * side) + 0.5 * side
    return torch.stack([x, y], 1) + 0.05 * torch.randn(n, 2)


def diffusion_loss(model, schedule, x):
    t = torch.rand(x.shape[0], 1).clamp(1e-3, 0.999)
    log_snr = schedule.log_snr(t)
    alpha, sigma = torch.sigmoid(log_snr).sqrt(), torch.sigmoid(-log_snr).sqrt()
    noise = torch.randn_like(x)
    prediction = model(alpha * x + sigma * noise, log_snr)
    error = ((prediction - noise) ** 2).mean(dim=-1)
    weights = schedule.weight(log_snr)
    return (weights * error).mean()


if __name__ == "__main__":
    torch.manual_seed(2)
    model, schedule = Denoiser(), CosineSchedule()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(60):
        loss = diffusion_loss(model, schedule, moons(64))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: {loss.item():.4f}")
