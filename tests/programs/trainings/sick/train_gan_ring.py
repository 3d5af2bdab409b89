import math
import torch
import torch.nn as nn

torch.manual_seed(131)
g = torch.Generator().manual_seed(132)
Z, B = 4, 128


def real_batch():
    k = torch.randint(0, 8, (B,), generator=g)
    angle = k * (2 * math.pi / 8)
    pts = torch.stack([angle.cos(), angle.sin()], 1)
    return pts + 0.05 * torch.randn(B, 2, generator=g)


def noise():
    return torch.randn(B, Z, generator=g)


G = nn.Sequential(nn.Linear(Z, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 2))
D = nn.Sequential(nn.Linear(2, 48), nn.LeakyReLU(0.2), nn.Linear(48, 48), nn.LeakyReLU(0.2), nn.Linear(48, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(B, 1), torch.zeros(B, 1)

for it in range(160):
    opt_g.zero_grad()
    opt_d.zero_grad()

    fake = G(noise())
    d_loss = bce(D(real_batch()), ones) + bce(D(fake), zeros)
    d_loss.backward()
    opt_d.step()

    g_loss = bce(D(G(noise())), ones)
    g_loss.backward()
    opt_g.step()

    if it % 40 == 0:
        with torch.no_grad():
            r = G(noise()).norm(dim=1).mean().item()
        print(f"{it:4d} d {d_loss.item():.3f} g {g_loss.item():.3f} radius {r:.3f}")
