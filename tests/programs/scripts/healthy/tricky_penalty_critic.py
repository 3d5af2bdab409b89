import torch
from torch import nn


def critic_net():
    return nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))


def gradient_penalty(critic, real, fake):
    alpha = torch.rand(len(real), 1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    grad = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)[0]
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()


torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))
critic = critic_net()
g_opt = torch.optim.Adam(generator.parameters(), 2e-3, betas=(0.0, 0.9))
c_opt = torch.optim.Adam(critic.parameters(), 2e-3, betas=(0.0, 0.9))
for it in range(60):
    critic.requires_grad_(True)
    for _ in range(4):
        real = torch.randn(64, 2) * 0.3 + torch.tensor([2.0, -1.0])
        with torch.no_grad():
            fake = generator(torch.randn(64, 4))
        c_loss = critic(fake).mean() - critic(real).mean() + 10 * gradient_penalty(critic, real, fake)
        c_opt.zero_grad()
        c_loss.backward()
        c_opt.step()
    critic.requires_grad_(False)
    g_loss = -critic(generator(torch.randn(64, 4))).mean()
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
    if it % 15 == 0:
        print(it, c_loss.item(), g_loss.item())
