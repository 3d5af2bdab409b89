"""A small GAN on a ring of Gaussians, with the step split into phases."""

import math
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import nn


def mlp(inputs, outputs, hidden=48):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, outputs))


def ring(count):
    angle = torch.randint(0, 8, (count,)) * (2 * math.pi / 8)
    return torch.stack([angle.cos(), angle.sin()], 1) * 2 + 0.05 * torch.randn(count, 2)


class Gan:
    def __init__(self, latent=4):
        self.latent = latent
        self.generator = mlp(latent, 2)
        self.discriminator = mlp(2, 1)
        self.optimizers = {
            "discriminator": torch.optim.Adam(self.discriminator.parameters(), lr=1e-3, betas=(0.5, 0.99)),
            "generator": torch.optim.Adam(self.generator.parameters(), lr=1e-3, betas=(0.5, 0.99)),
        }

    @contextmanager
    def phase(self, name):
        yield
        self.optimizers[name].step()

    def clear(self):
        for optimizer in self.optimizers.values():
            optimizer.zero_grad()

    def discriminator_loss(self, real, fake):
        return F.softplus(-self.discriminator(real)).mean() + F.softplus(self.discriminator(fake)).mean()

    def generator_loss(self, fake):
        return F.softplus(-self.discriminator(fake)).mean()

    def step(self, real):
        self.clear()
        fake = self.generator(torch.randn(len(real), self.latent))
        with self.phase("discriminator"):
            d_loss = self.discriminator_loss(real, fake)
            d_loss.backward(retain_graph=True)
        with self.phase("generator"):
            g_loss = self.generator_loss(fake)
            g_loss.backward()
        return d_loss.item(), g_loss.item()


if __name__ == "__main__":
    torch.manual_seed(0)
    gan = Gan()
    for iteration in range(50):
        losses = gan.step(ring(64))
    print(losses)
