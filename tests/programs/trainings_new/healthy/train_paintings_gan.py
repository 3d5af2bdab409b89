import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(45)
gen = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 15))
disc = nn.Sequential(nn.Linear(15, 32), nn.ReLU(), nn.Linear(32, 1))
opt_g = torch.optim.Adam(gen.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(disc.parameters(), lr=1e-3)
grid = torch.linspace(-1, 1, 15)
for step in range(80):
    paintings = torch.rand(32, 1) * grid ** 2
    ideas = gen(torch.randn(32, 5))
    d_loss = F.softplus(-disc(paintings)).mean() + F.softplus(disc(ideas.detach())).mean()
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()
    fake_score = disc(ideas)
    g_loss = F.softplus(-fake_score).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
    if step % 20 == 19:
        print(step, d_loss.item(), g_loss.item())
