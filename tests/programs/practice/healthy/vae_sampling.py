import argparse

import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self, inputs=32, hidden=64, latent=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.to_mu = nn.Linear(hidden, latent)
        self.to_logvar = nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, inputs))

    def sample(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + std * torch.randn_like(std)

    def forward(self, x):
        h = self.encoder(x)
        mu, logvar = self.to_mu(h), self.to_logvar(h)
        z = self.sample(mu, logvar)
        return self.decoder(z), mu, logvar


def curves(n, points=32):
    t = torch.linspace(0, 1, points)
    frequency = torch.rand(n, 1) * 2 + 1
    phase = torch.rand(n, 1) * 6.28
    return torch.sin(6.28 * frequency * t + phase) + 0.05 * torch.randn(n, points)


def elbo(recon, x, mu, logvar, beta):
    reconstruction = F.mse_loss(recon, x, reduction="none").sum(1).mean()
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
    return reconstruction + beta * kl


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--beta", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(2)
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(args.steps):
        x = curves(64)
        recon, mu, logvar = model(x)
        loss = elbo(recon, x, mu, logvar, args.beta)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(step, round(loss.item(), 3))
