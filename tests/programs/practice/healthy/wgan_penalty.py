import torch
from torch import autograd, nn

torch.manual_seed(31)
LATENT, LAMBDA, CRITIC_STEPS = 6, 10.0, 3


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(LATENT, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, z):
        return self.net(z)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


def gradient_penalty(critic, real, fake):
    eps = torch.rand(real.size(0), 1)
    mixed = (eps * real + (1 - eps) * fake).requires_grad_(True)
    score = critic(mixed)
    grads, = autograd.grad(score.sum(), mixed, create_graph=True)
    return ((grads.norm(2, dim=1) - 1) ** 2).mean()


def gaussians(n):
    centre = torch.randint(0, 4, (n,)) * (torch.pi / 2)
    return 2 * torch.stack([centre.cos(), centre.sin()], 1) + 0.1 * torch.randn(n, 2)


generator, critic = Generator(), Critic()
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
for step in range(40):
    for _ in range(CRITIC_STEPS):
        real = gaussians(64)
        fake = generator(torch.randn(64, LATENT)).detach()
        penalty = gradient_penalty(critic, real, fake)
        critic_loss = critic(fake).mean() - critic(real).mean() + LAMBDA * penalty
        opt_c.zero_grad()
        critic_loss.backward()
        opt_c.step()
    generator_loss = -critic(generator(torch.randn(64, LATENT))).mean()
    opt_g.zero_grad()
    generator_loss.backward()
    opt_g.step()
    if step % 10 == 0:
        print(step, critic_loss.item(), generator_loss.item())
