"""Wasserstein GAN with gradient penalty on a spiral; the critic steps three times per generator step."""

from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def frozen(module):
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    yield module
    for parameter in module.parameters():
        parameter.requires_grad_(True)


def spiral(count):
    turn = 4 * torch.rand(count).sqrt()
    return torch.stack([turn * turn.cos(), turn * turn.sin()], 1) / 4 + 0.02 * torch.randn(count, 2)


def penalty(critic, real, fake):
    share = torch.rand(len(real), 1)
    between = (share * real + (1 - share) * fake).requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return (slope.norm(dim=1) - 1).square().mean()


def main():
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(3, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))
    critic = nn.Sequential(nn.Linear(2, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 1))
    g_optimizer = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))
    c_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
    for _ in range(20):
        for _ in range(3):
            real = spiral(48)
            with torch.no_grad():
                fake = generator(torch.randn(48, 3))
            loss = critic(fake).mean() - critic(real).mean() + 10 * penalty(critic, real, fake)
            c_optimizer.zero_grad()
            loss.backward()
            c_optimizer.step()
        with frozen(critic):
            g_loss = -critic(generator(torch.randn(48, 3))).mean()
            g_optimizer.zero_grad()
            g_loss.backward()
            g_optimizer.step()
    print(loss.item(), g_loss.item())


if __name__ == "__main__":
    main()
