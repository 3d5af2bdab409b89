"""Variational autoencoder with a Gaussian latent on synthetic vectors."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class VAE(nn.Module):
    def __init__(self, n_in=20, hidden=32, latent=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU())
        self.to_mu = nn.Linear(hidden, latent)
        self.to_logvar = nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, n_in))

    def forward(self, x):
        h = self.encoder(x)
        mu, logvar = self.to_mu(h), self.to_logvar(h)
        std = torch.exp(0.5 * logvar)
        z = torch.normal(mu, std)
        return self.decoder(z), mu, logvar


def build_model():
    torch.manual_seed(141)
    return VAE()


def build_batch():
    g = torch.Generator().manual_seed(142)
    x = torch.randn(40, 3, generator=g) @ torch.randn(3, 20, generator=g)
    return x, x


def loss_fn(output, batch):
    recon, mu, logvar = output
    kl = -0.5 * (1 + logvar - mu ** 2 - logvar.exp()).sum(dim=-1).mean()
    return F.mse_loss(recon, batch[1], reduction="none").sum(dim=-1).mean() + kl
