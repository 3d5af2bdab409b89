"""Wasserstein GAN with gradient penalty on a ring of Gaussians."""

import argparse

import torch
from torch import nn


def mlp(inputs, outputs, width=48):
    return nn.Sequential(
        nn.Linear(inputs, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, outputs)
    )


def real_points(n):
    angle = torch.randint(0, 8, (n,)) * (3.14159 / 4)
    return 2 * torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(n, 2)


def gradient_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1)
    points = (mix * real + (1 - mix) * fake).requires_grad_(True)
    scores = critic(points)
    grads = torch.autograd.grad(scores.sum(), points, retain_graph=True)[0]
    return ((grads.norm(2, dim=1) - 1) ** 2).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--n-critic", type=int, default=4)
    parser.add_argument("--gp-weight", type=float, default=10.0)
    parser.add_argument("--latent", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    generator, critic = mlp(args.latent, 2), mlp(2, 1)
    opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    for iteration in range(args.iterations):
        for _ in range(args.n_critic):
            real = real_points(64)
            fake = generator(torch.randn(64, args.latent)).detach()
            penalty = gradient_penalty(critic, real, fake)
            loss_c = critic(fake).mean() - critic(real).mean() + args.gp_weight * penalty
            opt_c.zero_grad()
            loss_c.backward()
            opt_c.step()
        loss_g = -critic(generator(torch.randn(64, args.latent))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        if iteration % 10 == 0:
            print(iteration, loss_c.item(), loss_g.item(), penalty.item())


if __name__ == "__main__":
    main()
