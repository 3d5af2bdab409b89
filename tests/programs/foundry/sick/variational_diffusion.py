"""Variational diffusion on two moons with a monotone schedule that is learned too."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class MonotoneLinear(nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.abs(), self.bias)


class Schedule(nn.Module):
    def __init__(self, low=-6.0, high=6.0):
        super().__init__()
        self.l1 = MonotoneLinear(1, 1)
        self.l2 = MonotoneLinear(1, 32)
        self.l3 = MonotoneLinear(32, 1, bias=False)
        with torch.no_grad():
            self.l1.weight.fill_(high - low)
            self.l1.bias.fill_(low)
            self.l3.weight.mul_(0.1)

    def forward(self, t):
        y = self.l1(t)
        return y + self.l3(torch.sigmoid(self.l2(t)))


class Denoiser(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(3, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2)
        )

    def forward(self, z, gamma):
        return self.net(torch.cat([z, gamma / 6.0], dim=-1))


class VDM(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = Schedule()
        self.denoiser = Denoiser()

    def loss(self, x):
        t = torch.rand(len(x), 1)
        with torch.no_grad():
            gamma = self.gamma(t)
        alpha, sigma = torch.sigmoid(-gamma).sqrt(), torch.sigmoid(gamma).sqrt()
        noise = torch.randn_like(x)
        predicted = self.denoiser(alpha * x + sigma * noise, gamma)
        diffusion = (predicted - noise).pow(2).sum(-1)
        ends = self.gamma.l1.bias.new_tensor([[0.0], [1.0]])
        return diffusion.mean(), ends


def moons(n):
    angle = math.pi * torch.rand(n)
    side = torch.randint(0, 2, (n,)).float()
    x = torch.stack([angle.cos() + side, (1 - 2 * side) * angle.sin() + 0.5 * side], -1)
    return x + 0.05 * torch.randn_like(x)


def main():
    torch.manual_seed(102)
    model = VDM()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(40):
        loss, _ = model.loss(moons(128))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, round(loss.item(), 4))


if __name__ == "__main__":
    main()
