import torch
import torch.nn.functional as F
from torch import nn


class VectorQuantizer(nn.Module):
    def __init__(self, codes, dim, beta=0.25):
        super().__init__()
        self.codebook = nn.Embedding(codes, dim)
        self.codebook.weight.data.uniform_(-1 / codes, 1 / codes)
        self.beta = beta

    def forward(self, z):
        flat = z.reshape(-1, z.shape[-1])
        distances = torch.cdist(flat, self.codebook.weight)
        indices = distances.argmin(1)
        quantized = self.codebook(indices).view_as(z)
        codebook_loss = F.mse_loss(quantized, z.detach())
        commitment = F.mse_loss(z, quantized.detach())
        quantized = z + (quantized - z).detach()
        return quantized, codebook_loss + self.beta * commitment


class SpeechVQVAE(nn.Module):
    def __init__(self, bands=20, dim=8):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(bands, 32, 3, padding=1), nn.GELU(), nn.Conv1d(32, dim, 4, 2, 1)
        )
        self.quantizer = VectorQuantizer(24, dim)
        self.decoder = nn.Sequential(
            nn.ConvTranspose1d(dim, 32, 4, 2, 1), nn.GELU(), nn.Conv1d(32, bands, 3, padding=1)
        )

    def forward(self, mel):
        z = self.encoder(mel).transpose(1, 2)
        quantized, vq_loss = self.quantizer(z)
        return self.decoder(quantized.transpose(1, 2)), vq_loss


def build_model():
    torch.manual_seed(0)
    return SpeechVQVAE()


def build_batch():
    g = torch.Generator().manual_seed(1)
    t = torch.linspace(0, 6, 32)
    phase = torch.rand(12, 20, 1, generator=g) * 6
    return torch.sin(t + phase)


def compute_loss(model, mel):
    recon, vq_loss = model(mel)
    return F.mse_loss(recon, mel) + vq_loss
