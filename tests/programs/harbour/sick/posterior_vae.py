"""A convolutional VAE whose posterior is an object with its own latent."""

from functools import cached_property

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal, kl_divergence


class Posterior:
    def __init__(self, mean, log_std):
        self.distribution = Normal(mean, log_std.clamp(-5, 2).exp())

    @cached_property
    def latent(self):
        return self.distribution.sample()

    @property
    def divergence(self):
        prior = Normal(torch.zeros_like(self.distribution.loc), torch.ones_like(self.distribution.scale))
        return kl_divergence(self.distribution, prior).flatten(1).sum(1)


class ConvVAE(nn.Module):
    def __init__(self, latent=12, channels=16):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, channels, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(channels, 2 * channels, 4, 2, 1),
            nn.SiLU(),
            nn.Flatten(),
        )
        self.to_mean = nn.Linear(2 * channels * 16, latent)
        self.to_log_std = nn.Linear(2 * channels * 16, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, 2 * channels * 16),
            nn.Unflatten(1, (2 * channels, 4, 4)),
            nn.ConvTranspose2d(2 * channels, channels, 4, 2, 1),
            nn.SiLU(),
            nn.ConvTranspose2d(channels, 1, 4, 2, 1),
        )

    def encode(self, images):
        features = self.encoder(images)
        return Posterior(self.to_mean(features), self.to_log_std(features))

    def forward(self, images):
        posterior = self.encode(images)
        return {"logits": self.decoder(posterior.latent), "divergence": posterior.divergence}


def build_model():
    torch.manual_seed(0)
    return ConvVAE()


def build_batch():
    torch.manual_seed(1)
    return (torch.rand(16, 1, 16, 16) > 0.7).float()


def loss_fn(output, batch):
    nats = F.binary_cross_entropy_with_logits(output["logits"], batch, reduction="none").flatten(1).sum(1)
    return (nats + output["divergence"]).mean()
