"""A small diffusion model of a spiral, with EMA weights for sampling."""

import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS = 40
betas = torch.linspace(1e-3, 0.1, STEPS)
alpha_bar = torch.cumprod(1 - betas, 0)


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.time = nn.Embedding(STEPS, width)
        self.inp = nn.Linear(2, width)
        self.mid = nn.Linear(width, width)
        self.out = nn.Linear(width, 2)

    def forward(self, x, t):
        h = F.silu(self.inp(x) + self.time(t))
        return self.out(F.silu(self.mid(h)))


class EMA:
    def __init__(self, model, decay=0.995):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in model.state_dict().items()}
        self.backup = None

    @torch.no_grad()
    def update(self, model):
        for name, value in model.state_dict().items():
            self.shadow[name].lerp_(value, 1 - self.decay)

    def apply_to(self, model):
        self.backup = {k: v.detach().clone() for k, v in model.state_dict().items()}
        model.load_state_dict(self.shadow)

    def restore(self, model):
        model.load_state_dict(self.backup)


def spiral(n):
    r = torch.rand(n) * 2
    return torch.stack([r * torch.cos(4 * r), r * torch.sin(4 * r)], 1)


@torch.no_grad()
def sample(model, n=64):
    x = torch.randn(n, 2)
    for i in reversed(range(STEPS)):
        eps = model(x, torch.full((n,), i))
        x = (x - betas[i] / (1 - alpha_bar[i]).sqrt() * eps) / (1 - betas[i]).sqrt()
        if i:
            x = x + betas[i].sqrt() * torch.randn_like(x)
    return x


torch.manual_seed(70)
model = Denoiser()
ema = EMA(model)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(12):
    total = 0.0
    for _ in range(12):
        x0 = spiral(128)
        t = torch.randint(STEPS, (128,))
        noise = torch.randn_like(x0)
        a = alpha_bar[t].unsqueeze(1)
        loss = F.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * noise, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)
        total += loss.item()
    ema.apply_to(model)
    points = sample(model)
    ema.restore(model)
    print(f"epoch {epoch} loss {total / 12:.4f} spread {points.std().item():.3f}")
