import torch
from torch import nn

torch.manual_seed(74)
critic = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=5e-3, betas=(0.0, 0.9))
for step in range(100):
    real = torch.randn(48, 2) * 0.4 + 1
    fake = torch.randn(48, 2) * 0.4 - 1
    mix = torch.lerp(real, fake, torch.rand(48, 1)).requires_grad_()
    (slope,) = torch.autograd.grad(critic(mix).sum(), mix, create_graph=True)
    penalty = (slope.norm(dim=1) - 1).square().mean()
    loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 24:
        print(step, loss.item(), penalty.item())
