import argparse
import math

import torch
from torch import autograd, nn, optim


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes[:-2], sizes[1:-1]):
        layers += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


def ring(count):
    angle = torch.rand(count) * 2 * math.pi
    radius = 1 + 0.05 * torch.randn(count)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)


class WGAN:
    def __init__(self, opt):
        self.opt = opt
        self.generator = mlp(opt.latent, 64, 64, 2)
        self.critic = mlp(2, 64, 64, 1)
        self.optimizer_g = optim.Adam(self.generator.parameters(), lr=opt.lr, betas=(0.5, 0.9))
        self.optimizer_c = optim.Adam(self.critic.parameters(), lr=opt.lr, betas=(0.5, 0.9))

    def penalty(self, real, fake):
        mix = torch.rand(real.size(0), 1)
        points = (mix * real + (1 - mix) * fake).requires_grad_(True)
        values = self.critic(points)
        gradients = autograd.grad(
            outputs=values,
            inputs=points,
            grad_outputs=torch.ones_like(values),
            retain_graph=True,
        )[0]
        return ((gradients.norm(2, dim=1) - 1) ** 2).mean()

    def critic_step(self, real):
        with torch.no_grad():
            fake = self.generator(torch.randn(real.size(0), self.opt.latent))
        gap = self.critic(fake).mean() - self.critic(real).mean()
        loss = gap + self.opt.weight * self.penalty(real, fake)
        self.optimizer_c.zero_grad()
        loss.backward()
        self.optimizer_c.step()
        return -gap.item()

    def generator_step(self):
        for p in self.critic.parameters():
            p.requires_grad_(False)
        fake = self.generator(torch.randn(self.opt.batch, self.opt.latent))
        loss = -self.critic(fake).mean()
        self.optimizer_g.zero_grad()
        loss.backward()
        self.optimizer_g.step()
        for p in self.critic.parameters():
            p.requires_grad_(True)
        return loss.item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--latent", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--weight", type=float, default=10.0)
    parser.add_argument("--critic-steps", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=20)
    opt = parser.parse_args()
    torch.manual_seed(17)
    gan = WGAN(opt)
    for iteration in range(opt.iterations):
        for _ in range(opt.critic_steps):
            distance = gan.critic_step(ring(opt.batch))
        loss = gan.generator_step()
        if iteration % 5 == 0:
            print(f"{iteration} distance {distance:.4f} generator {loss:.4f}")


if __name__ == "__main__":
    main()
