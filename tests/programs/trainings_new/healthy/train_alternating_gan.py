import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(64)
gen = nn.Sequential(nn.Linear(3, 24), nn.ReLU(), nn.Linear(24, 1))
disc = nn.Sequential(nn.Linear(1, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
opts = {"g": torch.optim.Adam(gen.parameters(), 2e-3, betas=(0.5, 0.99)),
        "d": torch.optim.Adam(disc.parameters(), 4e-3, betas=(0.5, 0.99))}
for step in range(160):
    real = 2 + 0.5 * torch.randn(64, 1)
    opts["d"].zero_grad()
    with torch.no_grad():
        fake = gen(torch.randn(64, 3))
    d_loss = F.softplus(-disc(real)).mean() + F.softplus(disc(fake)).mean()
    d_loss.backward()
    opts["d"].step()
    for p in disc.parameters():
        p.requires_grad_(False)
    opts["g"].zero_grad()
    fake = gen(torch.randn(64, 3))
    g_loss = F.softplus(-disc(fake)).mean()
    g_loss.backward()
    opts["g"].step()
    for p in disc.parameters():
        p.requires_grad_(True)
    if step % 40 == 39:
        print(step, d_loss.item(), g_loss.item(), fake.mean().item())
