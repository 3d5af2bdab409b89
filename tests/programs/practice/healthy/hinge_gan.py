import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

torch.manual_seed(5)


class G(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(latent, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, z):
        return self.net(z)


class D(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            spectral_norm(nn.Linear(2, 64)), nn.LeakyReLU(0.2),
            spectral_norm(nn.Linear(64, 64)), nn.LeakyReLU(0.2),
            spectral_norm(nn.Linear(64, 1)),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


g, d = G(), D()
opt_g = torch.optim.Adam(g.parameters(), lr=1e-4, betas=(0.0, 0.9))
opt_d = torch.optim.Adam(d.parameters(), lr=4e-4, betas=(0.0, 0.9))
for step in range(60):
    for _ in range(2):
        x = torch.randn(64, 2) * 0.2 + torch.where(torch.rand(64, 1) < 0.5, 1.0, -1.0)
        with torch.no_grad():
            fake = g(torch.randn(64, 8))
        loss_d = F.relu(1 - d(x)).mean() + F.relu(1 + d(fake)).mean()
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
    d.requires_grad_(False)
    loss_g = -d(g(torch.randn(64, 8))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    d.requires_grad_(True)
    if step % 20 == 0:
        print(step, loss_d.item(), loss_g.item())
