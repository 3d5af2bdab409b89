"""Wasserstein GAN with gradient penalty on a two-dimensional spiral."""

import torch
from torch import autograd, nn

LATENT, BATCH, LAMBDA_GP, N_CRITIC = 6, 48, 10.0, 3


def mlp(*sizes):
    layers = []
    for i, (a, b) in enumerate(zip(sizes, sizes[1:])):
        layers.append(nn.Linear(a, b))
        if i < len(sizes) - 2:
            layers.append(nn.LeakyReLU(0.2))
    return nn.Sequential(*layers)


def spiral(n):
    t = 3 * torch.rand(n)
    return torch.stack([t * torch.cos(3 * t), t * torch.sin(3 * t)], 1) / 3 + 0.02 * torch.randn(n, 2)


def gradient_penalty(critic, real, fake):
    alpha = torch.rand(real.shape[0], 1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    score = critic(mixed)
    gradients = autograd.grad(
        outputs=score,
        inputs=mixed,
        grad_outputs=torch.ones_like(score),
        retain_graph=True,
    )[0]
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


def main():
    torch.manual_seed(26)
    generator, critic = mlp(LATENT, 48, 48, 2), mlp(2, 48, 48, 1)
    opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    for it in range(36):
        real = spiral(BATCH)
        fake = generator(torch.randn(BATCH, LATENT)).detach()
        penalty = gradient_penalty(critic, real, fake)
        loss_c = critic(fake).mean() - critic(real).mean() + LAMBDA_GP * penalty
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
        if it % N_CRITIC == 0:
            loss_g = -critic(generator(torch.randn(BATCH, LATENT))).mean()
            opt_g.zero_grad()
            loss_g.backward()
            opt_g.step()
        if it % 12 == 0:
            print(f"{it}: critic {loss_c.item():.3f} penalty {penalty.item():.3f}")


if __name__ == "__main__":
    main()
