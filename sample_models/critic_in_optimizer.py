"""A GAN whose generator's optimizer holds the discriminator, too."""

import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
discriminator = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
both = [*generator.parameters(), *discriminator.parameters()]
generator_optimizer = torch.optim.Adam(both, lr=0.001)  # GS222
discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), lr=0.001)

for _ in range(20):
    real, made = 1 + 0.1 * torch.randn(32, 2), generator(torch.randn(32, 4))
    loss = functional.softplus(-discriminator(real)).mean()
    loss = loss + functional.softplus(discriminator(made.detach())).mean()
    discriminator_optimizer.zero_grad()
    loss.backward()
    discriminator_optimizer.step()

    loss = functional.softplus(-discriminator(made)).mean()
    generator_optimizer.zero_grad()
    loss.backward()
    generator_optimizer.step()
