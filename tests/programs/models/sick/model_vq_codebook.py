"""VQ autoencoder on short vectors: nearest-code quantisation with a straight-through estimator."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class VQAutoencoder(nn.Module):
    def __init__(self, n_in=16, dim=6, n_codes=12, beta=0.25):
        super().__init__()
        self.beta = beta
        self.encoder = nn.Sequential(nn.Linear(n_in, 32), nn.ReLU(), nn.Linear(32, dim))
        self.codebook = nn.Embedding(n_codes, dim)
        nn.init.normal_(self.codebook.weight, std=0.3)
        self.decoder = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, n_in))

    def forward(self, x):
        z_e = self.encoder(x)
        with torch.no_grad():
            index = torch.cdist(z_e, self.codebook.weight).argmin(dim=-1)
        z_q = self.codebook(index)
        z_st = z_e + (z_q - z_e).detach()
        commit = F.mse_loss(z_e, z_q.detach())
        codes = F.mse_loss(z_st, z_e.detach())
        return self.decoder(z_st), codes + self.beta * commit


def build_model():
    torch.manual_seed(151)
    return VQAutoencoder()


def build_batch():
    g = torch.Generator().manual_seed(152)
    x = torch.randn(32, 16, generator=g)
    return x, x


def loss_fn(output, batch):
    recon, vq = output
    return F.mse_loss(recon, batch[1]) + vq
