"""A residual vector-quantized audio codec; the codebooks are buffers with moving averages."""

import torch
import torch.nn.functional as F
from torch import nn


class Codebook(nn.Module):
    def __init__(self, codes, width, decay=0.95):
        super().__init__()
        self.decay = decay
        self.register_buffer("codes", torch.randn(codes, width) * 0.3)
        self.register_buffer("counts", torch.ones(codes))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, x):
        flat = x.detach().flatten(0, 1)
        index = torch.cdist(flat, self.codes).argmin(dim=1)
        chosen = self.codes[index].view_as(x)
        if self.training:
            with torch.no_grad():
                hot = F.one_hot(index, len(self.codes)).float()
                self.counts.lerp_(hot.sum(dim=0), 1 - self.decay)
                self.sums.lerp_(hot.T @ flat, 1 - self.decay)
                self.codes.copy_(self.sums / (self.counts.unsqueeze(1) + 1e-3))
        return chosen


class Codec(nn.Module):
    def __init__(self, width=32, books=3):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(1, width, 7, padding=3),
            nn.ELU(),
            nn.Conv1d(width, width, 8, stride=4, padding=2),
            nn.ELU(),
            nn.Conv1d(width, width, 8, stride=4, padding=2),
        )
        self.books = nn.ModuleList([Codebook(32, width) for _ in range(books)])
        self.decoder = nn.Sequential(
            nn.ConvTranspose1d(width, width, 8, stride=4, padding=2),
            nn.ELU(),
            nn.ConvTranspose1d(width, width, 8, stride=4, padding=2),
            nn.ELU(),
            nn.Conv1d(width, 1, 7, padding=3),
        )

    def forward(self, wave):
        z = self.encoder(wave).transpose(1, 2)
        residual, total, commitment = z, torch.zeros_like(z), 0.0
        for book in self.books:
            chosen = book(residual)
            commitment = commitment + F.mse_loss(residual, chosen)
            residual = residual - chosen
            total = total + chosen
        quantized = z + (total - z).detach()
        return self.decoder(quantized.transpose(1, 2)), commitment


def build_model():
    torch.manual_seed(213)
    return Codec()


def build_batch():
    torch.manual_seed(214)
    time = torch.linspace(0, 40, 512)
    wave = torch.sin(time * (1 + torch.rand(4, 1, 1))) * 0.6
    return wave, wave


def loss_fn(output, batch):
    wave, commitment = output
    return F.l1_loss(wave, batch[1]) + 0.25 * commitment


def build_optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=3e-4)
