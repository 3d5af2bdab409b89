import torch
import torch.nn as nn

torch.manual_seed(6)


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, outputs))


generator, critic = mlp(4, 2), mlp(2, 1)
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
centres = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]])


def real(n):
    return centres[torch.randint(4, (n,))] + 0.1 * torch.randn(n, 2)


def penalty(x, fake):
    mix = torch.rand(len(x), 1)
    point = (mix * x + (1 - mix) * fake).requires_grad_(True)
    (grad,) = torch.autograd.grad(critic(point).sum(), point, create_graph=True)
    return ((grad.norm(dim=1) - 1) ** 2).mean()


for step in range(60):
    for _ in range(3):
        x = real(64)
        with torch.no_grad():
            fake = generator(torch.randn(64, 4))
        loss_c = critic(fake).mean() - critic(x).mean() + 10 * penalty(x, fake)
        opt_c.zero_grad()
        loss_c.backward()
        opt_c.step()
    for p in critic.parameters():
        p.requires_grad_(False)
    loss_g = -critic(generator(torch.randn(64, 4))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    for p in critic.parameters():
        p.requires_grad_(True)
    if step % 15 == 0:
        print(step, round(loss_c.item(), 3), round(loss_g.item(), 3))
