import copy

import torch
import torch.nn.functional as F
from torch import nn

STEPS = 50


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.time = nn.Embedding(STEPS, width)
        self.inp = nn.Linear(2, width)
        self.mid = nn.Linear(width, width)
        self.out = nn.Linear(width, 2)

    def forward(self, x, t):
        h = F.silu(self.inp(x) + self.time(t))
        h = h + F.silu(self.mid(h))
        return self.out(h)


class Diffusion:
    def __init__(self):
        self.betas = torch.linspace(1e-4, 0.05, STEPS)
        self.alpha_bar = torch.cumprod(1 - self.betas, 0)

    def noisy(self, x, t, noise):
        a = self.alpha_bar[t].unsqueeze(1)
        return a.sqrt() * x + (1 - a).sqrt() * noise


@torch.no_grad()
def update_ema(ema, model, decay=0.95):
    for averaged, parameter in zip(ema.parameters(), model.parameters()):
        averaged.mul_(decay).add_(parameter, alpha=1 - decay)


def spiral(n):
    angle = torch.rand(n) * 9
    return torch.stack([angle * angle.cos(), angle * angle.sin()], 1) / 5


def main():
    torch.manual_seed(6)
    model, diffusion = Denoiser(), Diffusion()
    ema = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(100):
        x = spiral(128)
        t = torch.randint(0, STEPS, (len(x),))
        noise = torch.randn_like(x)
        loss = F.mse_loss(model(diffusion.noisy(x, t, noise), t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_ema(ema, model)
        if step % 25 == 24:
            with torch.no_grad():
                check = F.mse_loss(ema(diffusion.noisy(x, t, noise), t), noise)
            print(step, loss.item(), check.item())


if __name__ == "__main__":
    main()
