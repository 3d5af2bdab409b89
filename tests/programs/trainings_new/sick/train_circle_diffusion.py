import math
import torch
from torch import nn


def sinusoids(t, d=16):
    f = torch.exp(-math.log(1000) * torch.arange(d // 2) / (d // 2))
    a = t[:, None] * f
    return torch.cat([a.sin(), a.cos()], -1)


class Denoiser(nn.Module):
    def __init__(self, d=2, width=48):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width))
        self.inp, self.mid, self.out = nn.Linear(d, width), nn.Linear(width, width), nn.Linear(width, d)

    @torch.no_grad()
    def embed(self, t):
        return self.time(sinusoids(t))

    def forward(self, x, t):
        h = nn.functional.silu(self.inp(x) + self.embed(t))
        return self.out(nn.functional.silu(self.mid(h)))


torch.manual_seed(54)
alpha = torch.linspace(0.999, 0.9, 50).cumprod(0)
model = Denoiser()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(150):
    angle = torch.rand(128) * 2 * math.pi
    x0 = torch.stack([angle.cos(), angle.sin()], 1)
    t = torch.randint(0, 50, (128,))
    noise = torch.randn_like(x0)
    a = alpha[t][:, None]
    loss = (model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t.float()) - noise).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 30 == 29:
        print(step, loss.item())
