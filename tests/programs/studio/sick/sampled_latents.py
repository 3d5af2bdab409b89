"""A variational autoencoder of small images."""

import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU())
        self.mean, self.log_scale = nn.Linear(48, latent), nn.Linear(48, latent)

    def forward(self, x):
        h = self.net(x)
        return Normal(self.mean(h), self.log_scale(h).clamp(-5, 2).exp())


class Decoder(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(latent, 48), nn.ReLU(), nn.Linear(48, 64))

    def forward(self, z):
        return self.net(z).view(-1, 1, 8, 8)


class VAE(nn.Module):
    def __init__(self, latent=6):
        super().__init__()
        self.encoder, self.decoder = Encoder(latent), Decoder(latent)

    def forward(self, x):
        posterior = self.encoder(x)
        z = posterior.sample()
        prior = Normal(torch.zeros_like(posterior.mean), torch.ones_like(posterior.stddev))
        return self.decoder(z), kl_divergence(posterior, prior).sum(1)


def bars(n):
    x = torch.zeros(n, 1, 8, 8)
    at = torch.randint(0, 8, (n,))
    x[torch.arange(n), 0, at] = 1
    return (x + 0.05 * torch.rand_like(x)).clamp(0, 1)


def build_model():
    torch.manual_seed(0)
    return VAE()


def build_batch():
    torch.manual_seed(1)
    return bars(32)


def loss_fn(output, batch):
    logits, divergence = output
    image = F.binary_cross_entropy_with_logits(logits, batch, reduction="none").sum((1, 2, 3))
    return (image + divergence).mean()
