"""Adversarial training on a mixture of two Gaussians."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Generator(nn.Module):
    def __init__(self, latent, width=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(latent, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, width), nn.LeakyReLU(0.2), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class AdversarialTrainer:
    def __init__(self, args):
        self.args = args
        self.generator, self.discriminator = Generator(args.latent), Discriminator()
        self.opt_g = torch.optim.Adam(self.generator.parameters(), lr=args.lr, betas=(0.5, 0.999))
        self.opt_d = torch.optim.Adam(self.discriminator.parameters(), lr=args.lr, betas=(0.5, 0.999))

    def real(self, n):
        return 0.2 * torch.randn(n, 2) + torch.randint(0, 2, (n, 1)) * 2 - 1

    def step(self):
        n = self.args.batch
        real = self.real(n)
        fake = self.generator(torch.randn(n, self.args.latent))
        self.opt_d.zero_grad()
        loss_d = F.softplus(-self.discriminator(real)).mean() + F.softplus(self.discriminator(fake.detach())).mean()
        loss_d.backward()
        self.opt_d.step()
        self.opt_g.zero_grad()
        loss_g = F.softplus(-self.discriminator(fake)).mean()
        loss_g.backward()
        self.opt_g.step()
        return loss_d.item(), loss_g.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--latent", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    trainer = AdversarialTrainer(args)
    for step in range(args.steps):
        losses = trainer.step()
        if step % 20 == 0:
            print(step, losses)


if __name__ == "__main__":
    main()
