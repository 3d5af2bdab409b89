import copy

import torch
import torch.nn.functional as F
from torch import nn


def generator(latent=8, width=48):
    return nn.Sequential(
        nn.Linear(latent, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2),
        nn.Linear(width, 2),
    )


def critic(width=48):
    return nn.Sequential(
        nn.Linear(2, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2),
        nn.Linear(width, 1),
    )


class Training:
    def __init__(self, latent=8, every=8, gamma=0.5):
        self.latent, self.every, self.gamma = latent, every, gamma
        self.g, self.d = generator(latent), critic()
        self.average = copy.deepcopy(self.g).requires_grad_(False)
        self.g_optimizer = torch.optim.Adam(self.g.parameters(), lr=1e-3, betas=(0.0, 0.99))
        self.d_optimizer = torch.optim.Adam(self.d.parameters(), lr=1e-3, betas=(0.0, 0.99))

    def critic_step(self, real, step):
        self.d.requires_grad_(True)
        fake = self.g(torch.randn(len(real), self.latent)).detach()
        loss = F.softplus(self.d(fake)).mean() + F.softplus(-self.d(real)).mean()
        self.d_optimizer.zero_grad()
        loss.backward()
        if step % self.every == 0:
            real = real.clone().requires_grad_(True)
            (gradient,) = torch.autograd.grad(self.d(real).sum(), real, create_graph=True)
            penalty = gradient.pow(2).sum(1).mean()
            (0.5 * self.gamma * self.every * penalty).backward()
        self.d_optimizer.step()
        return loss.item()

    def generator_step(self, n):
        self.d.requires_grad_(False)
        loss = F.softplus(-self.d(self.g(torch.randn(n, self.latent)))).mean()
        self.g_optimizer.zero_grad()
        loss.backward()
        self.g_optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(self.average.parameters(), self.g.parameters(), strict=True):
                slow.lerp_(fast, 0.02)
        return loss.item()


def main():
    torch.manual_seed(13)
    training = Training()
    for step in range(120):
        angle = 6.28 * torch.rand(64)
        real = torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(64, 2)
        d_loss = training.critic_step(real, step)
        g_loss = training.generator_step(64)
        if step % 30 == 0:
            print(f"{step}: d {d_loss:.3f} g {g_loss:.3f}")


if __name__ == "__main__":
    main()
