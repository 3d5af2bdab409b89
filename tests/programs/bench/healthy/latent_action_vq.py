"""Latent action model: a vector-quantized code explains the change between two frames."""

import torch
from torch import nn
from torch.nn import functional as F


class VectorQuantizer(nn.Module):
    def __init__(self, codes=16, dim=8):
        super().__init__()
        self.codebook = nn.Embedding(codes, dim)
        nn.init.uniform_(self.codebook.weight, -1 / codes, 1 / codes)

    def forward(self, x):
        distance = torch.cdist(x, self.codebook.weight)
        indices = distance.argmin(dim=-1)
        z = self.codebook(indices)
        z_q = x + (z - x).detach()
        return z_q, z, indices


class LatentActionModel(nn.Module):
    def __init__(self, frame=24, dim=8, hidden=32):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(2 * frame, hidden), nn.ReLU(), nn.Linear(hidden, dim))
        self.vq = VectorQuantizer(dim=dim)
        self.decoder = nn.Sequential(nn.Linear(frame + dim, hidden), nn.ReLU(), nn.Linear(hidden, frame))

    def forward(self, frames):
        before, after = frames
        z_e = self.encoder(torch.cat([before, after], dim=1))
        z_q, z, _ = self.vq(z_e)
        prediction = self.decoder(torch.cat([before, z_q], dim=1))
        return {"prediction": prediction, "z_e": z_e, "z": z}


def compute_loss(model, frames):
    out = model(frames)
    recon = F.mse_loss(out["prediction"], frames[1])
    codebook_loss = F.mse_loss(out["z"], out["z_e"].detach())
    commitment = F.mse_loss(out["z_e"], out["z"].detach())
    return recon + codebook_loss + 0.25 * commitment


def build_model():
    torch.manual_seed(0)
    return LatentActionModel()


def build_batch():
    g = torch.Generator().manual_seed(1)
    before = torch.randn(32, 24, generator=g)
    shift = torch.randn(4, 24, generator=g)[torch.randint(4, (32,), generator=g)]
    return before, before + shift
