import math

import torch
import torch.nn as nn


class Schedule:
    def __init__(self, steps=50, gamma=5.0):
        t = torch.arange(steps + 1) / steps
        f = torch.cos((t + 0.008) / 1.008 * math.pi / 2) ** 2
        self.alpha_bar = (f / f[0])[1:].clamp(1e-4, 0.9999).unsqueeze(1)
        snr = self.alpha_bar / (1 - self.alpha_bar)
        self.weight = snr.clamp(max=gamma) / snr
        self.steps = steps

    def noise(self, x, t, eps):
        a = self.alpha_bar[t]
        return a.sqrt() * x + (1 - a).sqrt() * eps


class EpsNet(nn.Module):
    def __init__(self, dim=2, width=64, freqs=4):
        super().__init__()
        self.register_buffer("freqs", 2.0 ** torch.arange(freqs))
        self.net = nn.Sequential(nn.Linear(dim + 2 * freqs, width), nn.SiLU(),
                                 nn.Linear(width, width), nn.SiLU(), nn.Linear(width, dim))

    def forward(self, x, t):
        ang = t[:, None] * self.freqs
        return self.net(torch.cat([x, ang.sin(), ang.cos()], dim=1))


def moons(n, g):
    a = math.pi * torch.rand(n, generator=g)
    top = torch.rand(n, generator=g) < 0.5
    x = torch.where(top, a.cos(), 1 - a.cos()) - 0.5
    y = torch.where(top, a.sin(), 0.5 - a.sin()) - 0.25
    return torch.stack([x, y], 1) + 0.05 * torch.randn(n, 2, generator=g)


def diffusion_loss(net, sched, x, g):
    t = torch.randint(0, sched.steps, (len(x),), generator=g)
    eps = torch.randn(x.shape, generator=g)
    pred = net(sched.noise(x, t, eps), t / sched.steps)
    err = (pred - eps).pow(2).mean(dim=1)
    return (sched.weight[t] * err).mean()


def main():
    torch.manual_seed(361)
    g = torch.Generator().manual_seed(362)
    net, sched = EpsNet(), Schedule()
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-4)
    for step in range(150):
        loss = diffusion_loss(net, sched, moons(256, g), g)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f}")


main()
