import torch
from torch import nn
from torch.nn import functional as F


class VAE(nn.Module):
    def __init__(self, d=16, h=48, z=3):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, h), nn.ELU(), nn.Linear(h, h), nn.ELU())
        self.mu = nn.Linear(h, z)
        self.logvar = nn.Linear(h, z)
        self.dec = nn.Sequential(nn.Linear(z, h), nn.ELU(), nn.Linear(h, d))

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + torch.randn_like(std) * std

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        return self.dec(self.reparameterize(mu, logvar)), mu, logvar


def elbo_loss(recon, x, mu, logvar):
    rec = F.mse_loss(recon, x, reduction="none").sum(dim=1).mean()
    kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp(), dim=1).mean()
    return rec + kl, rec


def blobs(n, g, proj):
    z = torch.randn(n, 3, generator=g)
    return torch.tanh(z @ proj) * 2 + 0.05 * torch.randn(n, proj.shape[1], generator=g)


def main():
    torch.manual_seed(121)
    g = torch.Generator().manual_seed(122)
    proj = torch.randn(3, 16, generator=g)
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(200):
        x = blobs(64, g, proj)
        recon, mu, logvar = model(x)
        loss, rec = elbo_loss(recon, x, mu, logvar)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"{step:3d} loss {loss.item():.3f} rec {rec.item():.3f}")


main()
