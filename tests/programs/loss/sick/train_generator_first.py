"""Trains a generator and a discriminator of points on a ring."""

import torch
from torch import nn
from torch.nn import functional


def ring(count):
    angle = torch.rand(count) * 6.283
    return torch.stack([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(count, 2)


def main():
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    discriminator = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    ones, zeros = torch.ones(64, 1), torch.zeros(64, 1)
    for step in range(40):
        real, noise = ring(64), torch.randn(64, 4)
        optimizer_g.zero_grad()
        optimizer_d.zero_grad()
        fake = generator(noise)
        loss_g = functional.binary_cross_entropy_with_logits(discriminator(fake), ones)
        loss_g.backward()
        optimizer_g.step()

        loss_d = functional.binary_cross_entropy_with_logits(discriminator(real), ones)
        loss_d = loss_d + functional.binary_cross_entropy_with_logits(
            discriminator(fake.detach()), zeros
        )
        loss_d.backward()
        optimizer_d.step()
        if step % 10 == 0:
            print(step, round(loss_g.item(), 3), round(loss_d.item(), 3))


if __name__ == "__main__":
    main()
