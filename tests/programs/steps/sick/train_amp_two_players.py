"""A small GAN on a ring, with one gradient scaler for both players."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def ring(count):
    angle = torch.rand(count) * 2 * math.pi
    return torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(count, 2)


def mlp(*widths):
    layers = []
    for before, after in zip(widths, widths[1:]):
        layers += [nn.Linear(before, after), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers[:-1])


def bce(logits, value):
    return F.binary_cross_entropy_with_logits(
        logits.float(), torch.full_like(logits.float(), value)
    )


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    generator, critic = mlp(8, 32, 32, 2), mlp(2, 32, 32, 1)
    opt_g = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.99))
    opt_d = torch.optim.SGD(critic.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for step in range(50):
        real = ring(64)
        fake = generator(torch.randn(64, 8))
        opt_d.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss_d = bce(critic(real), 1.0) + bce(critic(fake.detach()), 0.0)
        scaler.scale(loss_d).backward()
        opt_d.step()
        opt_g.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss_g = bce(critic(fake), 1.0)
        scaler.scale(loss_g).backward()
        scaler.step(opt_g)
        scaler.update()
    print(f"critic {loss_d.item():.4f} generator {loss_g.item():.4f}")


main()
