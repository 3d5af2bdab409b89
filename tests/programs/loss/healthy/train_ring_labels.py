"""A small GAN of points on a ring."""

import math

import torch
from torch import nn


def ring(count):
    angle = 2 * math.pi * torch.rand(count, 1)
    return torch.cat([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(count, 2)


torch.manual_seed(11)
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
discriminator = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
real, fake = torch.full((64, 1), 0.9), torch.zeros(64, 1)
for step in range(80):
    noise = torch.randn(64, 4)
    d_loss = bce(discriminator(ring(64)), real)
    d_loss = d_loss + bce(discriminator(generator(noise).detach()), fake)
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()
    noise = torch.randn(64, 4)
    g_loss = bce(discriminator(generator(noise)), real)
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
