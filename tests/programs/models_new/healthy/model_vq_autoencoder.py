import torch
import torch.nn as nn
import torch.nn.functional as F


class VQVAE(nn.Module):
    def __init__(self, d=12, codes=16, z=6):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, z), nn.Tanh())
        self.codebook = nn.Parameter(torch.randn(codes, z) * 0.5)
        self.dec = nn.Sequential(nn.Linear(z, 32), nn.ReLU(), nn.Linear(32, d))

    def forward(self, x):
        z = self.enc(x)
        index = torch.cdist(z.detach(), self.codebook.detach()).argmin(1)
        q = self.codebook[index]
        codebook_loss = F.mse_loss(q, z.detach())
        commitment = F.mse_loss(z, q.detach())
        q = z + (q - z).detach()
        return self.dec(q), codebook_loss + 0.25 * commitment


def build_model():
    torch.manual_seed(421)
    return VQVAE()


def build_batch():
    g = torch.Generator().manual_seed(422)
    centre = torch.randn(6, 12, generator=g)
    return centre[torch.randint(0, 6, (64,), generator=g)] + 0.1 * torch.randn(64, 12, generator=g)


def loss_fn(output, batch):
    return F.mse_loss(output[0], batch) + output[1]
