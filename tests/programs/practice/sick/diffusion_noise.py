import math

import torch
from torch import nn


def timestep_embedding(t, width):
    half = width // 2
    freqs = torch.exp(-math.log(1000) * torch.arange(half) / half)
    args = t[:, None].float() * freqs[None]
    return torch.cat([args.cos(), args.sin()], -1)


class NoiseNet(nn.Module):
    def __init__(self, channels=24):
        super().__init__()
        self.channels = channels
        self.time_mlp = nn.Sequential(nn.Linear(channels, channels), nn.SiLU(), nn.Linear(channels, channels))
        self.conv_in = nn.Conv1d(1, channels, 3, padding=1)
        self.conv_mid = nn.Conv1d(channels, channels, 3, padding=1)
        self.conv_out = nn.Conv1d(channels, 1, 3, padding=1)

    def forward(self, x, t):
        h = self.conv_in(x) + self.time_mlp(timestep_embedding(t, self.channels))[..., None]
        h = h + self.conv_mid(torch.nn.functional.silu(h))
        return self.conv_out(torch.nn.functional.silu(h))


class Trainer:
    def __init__(self, steps=40, lr=2e-3):
        self.model = NoiseNet()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.alpha_bar = torch.cumprod(1 - torch.linspace(1e-3, 0.1, steps), 0)

    def loss(self, x):
        t = torch.randint(0, len(self.alpha_bar), (x.size(0),))
        a = self.alpha_bar[t].view(-1, 1, 1)
        noise = torch.randn_like(x)
        noisy = a.sqrt() * x + (1 - a).sqrt() * torch.randn_like(x)
        return (self.model(noisy, t) - noise).pow(2).mean()

    def fit(self, iterations):
        for i in range(iterations):
            phase = torch.rand(32, 1, 1) * 6.28
            x = torch.sin(torch.linspace(0, 6.28, 24).view(1, 1, -1) + phase)
            loss = self.loss(x)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if i % 25 == 0:
                print(i, loss.item())


if __name__ == "__main__":
    torch.manual_seed(0)
    Trainer().fit(100)
