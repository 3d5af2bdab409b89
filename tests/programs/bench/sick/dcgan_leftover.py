"""A generative adversarial network that learns a ring of Gaussians."""

import math

import torch
from torch import nn


class GAN:
    def __init__(self, latent=8, hidden=48, lr=1e-3):
        self.latent = latent
        self.generator = nn.Sequential(
            nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2)
        )
        self.discriminator = nn.Sequential(
            nn.Linear(2, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden), nn.LeakyReLU(0.2),
            nn.Linear(hidden, 1),
        )
        self.optim_g = torch.optim.Adam(self.generator.parameters(), lr=lr, betas=(0.5, 0.99))
        self.optim_d = torch.optim.Adam(self.discriminator.parameters(), lr=lr, betas=(0.5, 0.99))
        self.criterion = nn.BCEWithLogitsLoss()

    def step(self, real):
        n = real.shape[0]
        ones, zeros = torch.ones(n, 1), torch.zeros(n, 1)

        # train the discriminator on real and fake points
        fake = self.generator(torch.randn(n, self.latent))
        err_real = self.criterion(self.discriminator(real), ones)
        err_fake = self.criterion(self.discriminator(fake.detach()), zeros)
        err_d = err_real + err_fake
        err_d.backward()
        self.optim_d.step()

        # train the generator
        self.optim_g.zero_grad()
        err_g = self.criterion(self.discriminator(fake), ones)
        err_g.backward()
        self.optim_g.step()
        return err_d.item(), err_g.item()


def ring(n, modes=8, std=0.05):
    angle = 2 * math.pi * torch.randint(modes, (n,)) / modes
    return torch.stack([angle.cos(), angle.sin()], dim=1) + std * torch.randn(n, 2)


def main():
    torch.manual_seed(14)
    gan = GAN()
    for step in range(60):
        err_d, err_g = gan.step(ring(64))
        if step % 20 == 0:
            print(f"step {step}: d {err_d:.3f} g {err_g:.3f}")


if __name__ == "__main__":
    main()
