import torch
import torch.nn.functional as F
from torch import nn


def mlp(sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


class GAN:
    def __init__(self, latent=4):
        self.latent = latent
        self.generator = mlp([latent, 32, 32, 2])
        self.discriminator = mlp([2, 32, 32, 1])
        self.opt_g = torch.optim.Adam(self.generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
        self.opt_d = torch.optim.Adam(self.discriminator.parameters(), lr=1e-3, betas=(0.5, 0.999))

    def d_step(self, real, fake):
        self.opt_d.zero_grad()
        real_score, fake_score = self.discriminator(real), self.discriminator(fake)
        loss = F.softplus(-real_score).mean() + F.softplus(fake_score).mean()
        loss.backward()
        self.opt_d.step()
        return loss.item()

    def g_step(self, fake):
        self.opt_g.zero_grad()
        loss = F.softplus(-self.discriminator(fake)).mean()
        loss.backward()
        self.opt_g.step()
        return loss.item()

    def step(self, real):
        fake = self.generator(torch.randn(len(real), self.latent))
        fake = fake.detach()
        d_loss = self.d_step(real, fake)
        return d_loss, self.g_step(fake)


def ring(n):
    angle = torch.rand(n) * 6.2832
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2)


def main():
    torch.manual_seed(8)
    gan = GAN()
    for step in range(100):
        d_loss, g_loss = gan.step(ring(64))
        if step % 25 == 0:
            print(step, round(d_loss, 3), round(g_loss, 3))


if __name__ == "__main__":
    main()
