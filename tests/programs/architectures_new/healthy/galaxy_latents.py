"""A convolutional variational autoencoder of galaxy images with a hierarchical latent."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence


class Encoder(nn.Module):
    def __init__(self, width=24, latent=12):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.SiLU(),
            nn.Conv2d(2 * width, 2 * width, 4, 2, 1),
            nn.SiLU(),
            nn.Flatten(),
        )
        self.mean = nn.Linear(2 * width * 16, latent)
        self.scale = nn.Linear(2 * width * 16, latent)

    def forward(self, image):
        x = self.body(image)
        return Normal(self.mean(x), F.softplus(self.scale(x)) + 1e-3)


class Decoder(nn.Module):
    def __init__(self, width=24, latent=12):
        super().__init__()
        self.input = nn.Linear(latent, 2 * width * 16)
        self.body = nn.Sequential(
            nn.Unflatten(1, (2 * width, 4, 4)),
            nn.SiLU(),
            nn.ConvTranspose2d(2 * width, 2 * width, 4, 2, 1),
            nn.SiLU(),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1),
            nn.SiLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1),
        )

    def forward(self, z):
        return self.body(self.input(z))


class GalaxyAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.prior_mean = nn.Parameter(torch.zeros(12))
        self.prior_scale = nn.Parameter(torch.zeros(12))

    def forward(self, image):
        posterior = self.encoder(image)
        z = posterior.rsample()
        prior = Normal(self.prior_mean, self.prior_scale.exp())
        divergence = kl_divergence(Independent(posterior, 1), Independent(prior.expand(z.shape), 1))
        return self.decoder(z), divergence


def build_model():
    torch.manual_seed(87)
    return GalaxyAutoencoder()


def build_batch():
    torch.manual_seed(88)
    image = torch.rand(6, 3, 32, 32)
    return image, image


def loss_fn(output, batch):
    image, divergence = output
    likelihood = F.binary_cross_entropy_with_logits(image, batch[1], reduction="none")
    return likelihood.flatten(1).sum(dim=1).mean() + divergence.mean()
