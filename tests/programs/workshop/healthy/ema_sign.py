import torch
import torch.nn as nn
import torch.nn.functional as F


class ExponentialMovingAverage:
    def __init__(self, parameters, decay=0.95):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in parameters]

    @torch.no_grad()
    def update(self, parameters):
        for s, p in zip(self.shadow, parameters):
            gap = (s - p) * (1 - self.decay)
            s.sub_(gap)

    @torch.no_grad()
    def copy_to(self, parameters):
        for s, p in zip(self.shadow, parameters):
            p.copy_(s)


class Denoiser(nn.Module):
    def __init__(self, dim=8, width=64):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, width), nn.SiLU())
        self.inp = nn.Linear(dim, width)
        self.out = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, dim))

    def forward(self, x, t):
        return self.out(self.inp(x) + self.time(t))


def diffusion_loss(net, x0):
    t = torch.rand(len(x0), 1)
    noise = torch.randn_like(x0)
    a = torch.cos(t * torch.pi / 2)
    s = torch.sin(t * torch.pi / 2)
    return F.mse_loss(net(a * x0 + s * noise, t), noise)


torch.manual_seed(0)
net = Denoiser()
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
ema = ExponentialMovingAverage(net.parameters())
base = torch.randn(4, 8) * 2
for it in range(120):
    x0 = base[torch.randint(0, 4, (64,))] + 0.1 * torch.randn(64, 8)
    loss = diffusion_loss(net, x0)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    ema.update(net.parameters())

print("live", diffusion_loss(net, base.repeat(64, 1)).item())
ema.copy_to(net.parameters())
print("ema", diffusion_loss(net, base.repeat(64, 1)).item())
