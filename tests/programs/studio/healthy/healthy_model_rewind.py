"""A masked autoencoder whose loss covers the hidden patches."""

import torch
from torch import nn
from torch.nn import functional as F


class MaskedAutoencoder(nn.Module):
    def __init__(self, patches=16, size=12, dim=32, hidden=0.75):
        super().__init__()
        self.embed = nn.Linear(size, dim)
        self.register_buffer("places", torch.randn(patches, dim) * 0.1)
        self.encoder = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.blank = nn.Parameter(torch.randn(dim) * 0.02)
        self.decoder = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.out = nn.Linear(dim, size)
        self.shown = int(patches * (1 - hidden))

    def forward(self, patches):
        n, count, _ = patches.shape
        order = torch.rand(n, count).argsort(1)
        back = order.argsort(1)
        x = self.embed(patches) + self.places
        kept = order[:, : self.shown, None].expand(-1, -1, x.shape[-1])
        x = self.encoder(x.gather(1, kept))
        x = torch.cat([x, self.blank.expand(n, count - self.shown, -1)], 1)
        x = x.gather(1, back[:, :, None].expand_as(x)) + self.places
        return self.out(self.decoder(x)), (back >= self.shown).float()


def build_model():
    torch.manual_seed(0)
    return MaskedAutoencoder()


def build_batch():
    torch.manual_seed(1)
    phase = torch.rand(16, 1, 1) * 6
    return torch.sin(phase + torch.arange(192).view(1, 16, 12) * 0.1) + 0.05 * torch.randn(16, 16, 12)


def loss_fn(output, batch):
    decoded, hidden = output
    with torch.no_grad():
        target = (batch - batch.mean(-1, keepdim=True)) / (batch.var(-1, keepdim=True) + 1e-6).sqrt()
    error = F.mse_loss(decoded, target, reduction="none").mean(-1)
    return (error * hidden).sum() / hidden.sum()
