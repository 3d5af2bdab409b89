from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm


@dataclass
class GANConfig:
    latent: int = 4
    width: int = 48
    batch_size: int = 64
    steps: int = 40
    lr: float = 1e-3
    r1_gamma: float = 0.1
    r1_every: int = 2


class Generator(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.latent = config.latent
        self.net = nn.Sequential(
            nn.Linear(config.latent, config.width),
            nn.LeakyReLU(0.2),
            nn.Linear(config.width, config.width),
            nn.LeakyReLU(0.2),
            nn.Linear(config.width, 2),
        )

    def forward(self, count):
        return self.net(torch.randn(count, self.latent))


class Discriminator(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.net = nn.Sequential(
            spectral_norm(nn.Linear(2, config.width)),
            nn.LeakyReLU(0.2),
            spectral_norm(nn.Linear(config.width, config.width)),
            nn.LeakyReLU(0.2),
            nn.Linear(config.width, 1),
        )

    def forward(self, points):
        return self.net(points).squeeze(-1)


class R1Penalty:
    def __init__(self, gamma):
        self.gamma = gamma

    def input_gradient(self, scores, points):
        return torch.autograd.grad(scores.sum(), points, create_graph=True)[0]

    def __call__(self, discriminator, real):
        points = real.detach().requires_grad_()
        scores = discriminator(points)
        gradient = self.input_gradient(scores, points)
        return scores, 0.5 * self.gamma * gradient.pow(2).sum(1).mean()


class GAN:
    def __init__(self, config):
        self.config = config
        self.generator = Generator(config)
        self.discriminator = Discriminator(config)
        betas = (0.0, 0.99)
        self.g_optimizer = torch.optim.Adam(self.generator.parameters(), config.lr, betas)
        self.d_optimizer = torch.optim.Adam(self.discriminator.parameters(), config.lr, betas)
        self.penalty = R1Penalty(config.r1_gamma * config.r1_every)

    def d_step(self, step, real):
        with torch.no_grad():
            fake = self.generator(len(real))
        if step % self.config.r1_every == 0:
            scores, penalty = self.penalty(self.discriminator, real)
        else:
            scores, penalty = self.discriminator(real), torch.zeros(())
        loss = F.softplus(-scores).mean() + F.softplus(self.discriminator(fake)).mean()
        self.d_optimizer.zero_grad(set_to_none=True)
        (loss + penalty).backward()
        self.d_optimizer.step()
        return loss.item()

    def g_step(self, count):
        self.discriminator.requires_grad_(False)
        loss = F.softplus(-self.discriminator(self.generator(count))).mean()
        self.g_optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.g_optimizer.step()
        self.discriminator.requires_grad_(True)
        return loss.item()


def ring(count):
    angle = torch.randint(0, 8, (count,)) * (6.2832 / 8)
    points = torch.stack([angle.cos(), angle.sin()], dim=1)
    return points + 0.05 * torch.randn_like(points)


def main():
    torch.manual_seed(36)
    config = GANConfig()
    gan = GAN(config)
    for step in range(config.steps):
        d_loss = gan.d_step(step, ring(config.batch_size))
        g_loss = gan.g_step(config.batch_size)
        if step % 10 == 0:
            print(step, d_loss, g_loss)


if __name__ == "__main__":
    main()
