"""Trains a critic between two point clouds with a penalty on the norm of its input gradient."""

import torch
from torch import nn


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2, 64),
            nn.LeakyReLU(0.2),
            nn.Linear(64, 64),
            nn.LeakyReLU(0.2),
            nn.Linear(64, 1),
        )

    def forward(self, points):
        return self.layers(points)


def slope_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1)
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    score = critic(between)
    (slope,) = torch.autograd.grad(score.sum(), between, create_graph=True)
    return ((slope.norm(dim=1) - 1) ** 2).mean()


def main():
    torch.manual_seed(0)
    critic = Critic()
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.5, 0.9))
    for step in range(40):
        angle = torch.rand(64) * 6.283
        real = torch.stack([angle.cos(), angle.sin()], dim=1)
        fake = 0.5 * torch.randn(64, 2)
        optimizer.zero_grad()
        distance = critic(fake).mean() - critic(real).mean()
        loss = distance + 10.0 * slope_penalty(critic, real, fake)
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, round(loss.item(), 4))


if __name__ == "__main__":
    main()
