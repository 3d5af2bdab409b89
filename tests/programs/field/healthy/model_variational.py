import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal, kl_divergence


class Encoder(nn.Module):
    def __init__(self, n_in, latent):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, 40), nn.ELU())
        self.mu = nn.Linear(40, latent)
        self.log_std = nn.Linear(40, latent)

    def forward(self, x):
        h = self.body(x)
        return Normal(self.mu(h), self.log_std(h).exp())


class VAE(nn.Module):
    def __init__(self, n_in=16, latent=4, beta=0.1):
        super().__init__()
        self.encoder = Encoder(n_in, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, 40), nn.ELU(), nn.Linear(40, n_in))
        self.beta = beta

    def forward(self, x):
        posterior = self.encoder(x)
        z = posterior.rsample()
        recon = self.decoder(z)
        prior = Normal(torch.zeros_like(z), torch.ones_like(z))
        kl = kl_divergence(posterior, prior).sum(-1).mean()
        return {"recon": recon, "kl": kl}


def build_model():
    torch.manual_seed(33)
    return VAE()


def build_batch():
    g = torch.Generator().manual_seed(34)
    codes = torch.randn(80, 3, generator=g)
    return torch.tanh(codes @ torch.randn(3, 16, generator=g))


def compute_loss(model, x):
    out = model(x)
    return F.mse_loss(out["recon"], x, reduction="sum") / len(x) + model.beta * out["kl"]
