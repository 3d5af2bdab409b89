"""Wasserstein GAN with clipped critic on a ring of Gaussians."""
import math

import torch
from torch import nn


def block(n_in, n_out):
    return [nn.Linear(n_in, n_out), nn.LeakyReLU(0.2)]


class Generator(nn.Sequential):
    def __init__(self, latent=8, width=48):
        super().__init__(*block(latent, width), *block(width, width), nn.Linear(width, 2))


class Critic(nn.Sequential):
    def __init__(self, width=48):
        super().__init__(*block(2, width), *block(width, width), nn.Linear(width, 1))


def ring(n, modes=8):
    angle = 2 * math.pi * torch.randint(0, modes, (n,)) / modes
    return torch.stack([angle.cos(), angle.sin()], -1) * 2 + 0.05 * torch.randn(n, 2)


class Trainer:
    def __init__(self, latent=8, n_critic=3, clip=0.05):
        self.g, self.d = Generator(latent), Critic()
        self.opt_g = torch.optim.RMSprop(self.g.parameters(), lr=5e-4)
        self.opt_d = torch.optim.RMSprop(self.d.parameters(), lr=5e-4)
        self.latent, self.n_critic, self.clip = latent, n_critic, clip

    def sample(self, n):
        z = torch.randn(n, self.latent)
        return self.g(z)

    def critic_step(self, real):
        self.opt_d.zero_grad()
        fake = self.sample(len(real))
        loss = self.d(fake.detach()).mean() - self.d(real).mean()
        loss.backward()
        self.opt_d.step()
        with torch.no_grad():
            for p in self.d.parameters():
                p.clamp_(-self.clip, self.clip)
        return loss.item()

    def generator_step(self, n):
        self.opt_g.zero_grad()
        loss = -self.d(self.sample(n)).mean()
        loss.backward()
        self.opt_g.step()
        return loss.item()

    def fit(self, rounds, batch=64):
        for r in range(rounds):
            for _ in range(self.n_critic):
                d = self.critic_step(ring(batch))
            g = self.generator_step(batch)
            if r % 5 == 0:
                print(f"round {r}: critic {d:+.4f} generator {g:+.4f}")


if __name__ == "__main__":
    torch.manual_seed(106)
    Trainer().fit(15)
