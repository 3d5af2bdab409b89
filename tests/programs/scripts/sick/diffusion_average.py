import math

import torch
from torch import nn


class Ema:
    def __init__(self, parameters, decay=0.995):
        self.parameters = list(parameters)
        self.shadow = [p.detach().clone() for p in self.parameters]
        self.decay = decay
        self.backup = None

    @torch.no_grad()
    def update(self):
        for s, p in zip(self.shadow, self.parameters):
            s.mul_(self.decay).add_(p, alpha=1 - self.decay)

    @torch.no_grad()
    def store(self):
        self.backup = [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def copy_to(self):
        for s, p in zip(self.shadow, self.parameters):
            p.copy_(s)

    @torch.no_grad()
    def restore(self):
        for b, p in zip(self.backup, self.parameters):
            p.copy_(b)


class Denoiser(nn.Module):
    def __init__(self, dim=2, width=64):
        super().__init__()
        self.time = nn.Linear(16, width)
        self.inp = nn.Linear(dim, width)
        self.mid = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.out = nn.Linear(width, dim)

    def forward(self, x, t):
        freqs = torch.exp(torch.arange(8) * -0.5)
        emb = torch.cat([torch.sin(t[:, None] * freqs), torch.cos(t[:, None] * freqs)], 1)
        h = torch.nn.functional.silu(self.inp(x) + self.time(emb))
        for layer in self.mid:
            h = h + torch.nn.functional.silu(layer(h))
        return self.out(h)


T = 50
alpha_bar = torch.cos(torch.linspace(0, math.pi / 2 * 0.98, T)) ** 2


@torch.no_grad()
def sample(model, n):
    x = torch.randn(n, 2)
    for t in reversed(range(1, T, 5)):
        a = alpha_bar[t]
        eps = model(x, torch.full((n,), float(t)))
        clean = (x - (1 - a).sqrt() * eps) / a.sqrt()
        b = alpha_bar[max(t - 5, 0)]
        x = b.sqrt() * clean.clamp(-3, 3) + (1 - b).sqrt() * eps
    return x


def data(n):
    angle = torch.rand(n) * 2 * math.pi
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2)


def train(steps=240, sample_every=30):
    torch.manual_seed(3)
    model = Denoiser()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    ema = Ema(model.parameters())
    for step in range(1, steps + 1):
        x = data(128)
        t = torch.randint(0, T, (128,))
        noise = torch.randn_like(x)
        a = alpha_bar[t][:, None]
        predicted = model(a.sqrt() * x + (1 - a).sqrt() * noise, t.float())
        loss = (predicted - noise).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update()
        if step % sample_every == 0:
            ema.copy_to()
            radius = sample(model, 64).norm(dim=1).mean()
            print(step, round(loss.item(), 3), round(radius.item(), 3))


train()
