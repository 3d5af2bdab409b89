"""Wasserstein GAN with weight clipping and requires_grad switched by turns."""

import torch
from torch import nn


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad = flag


def real_points(n):
    return torch.randn(n, 2) * torch.tensor([1.0, 0.3]) + torch.tensor([2.0, -1.0])


def main(steps=40, n_critic=4, clip=0.05):
    torch.manual_seed(12)
    gen = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    opt_g = torch.optim.RMSprop(gen.parameters(), lr=1e-3)
    opt_c = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
    for step in range(steps):
        set_trainable(critic, True)
        fake = gen(torch.randn(32, 4)).detach()
        loss_c = critic(fake).mean() - critic(real_points(32)).mean()
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
        with torch.no_grad():
            for p in critic.parameters():
                p.clamp_(-clip, clip)
        if (step + 1) % n_critic:
            continue
        set_trainable(critic, False)
        loss_g = -critic(gen(torch.randn(32, 4))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        print(f"{step}: critic {loss_c.item():.4f} generator {loss_g.item():.4f}")


if __name__ == "__main__":
    main()
