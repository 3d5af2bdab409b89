"""A latent action model: two frames are encoded to discrete codes that predict the second frame."""

import torch
import torch.nn.functional as F
from torch import nn


class VectorQuantizer(nn.Module):
    def __init__(self, codes, width):
        super().__init__()
        self.codebook = nn.Embedding(codes, width)
        nn.init.uniform_(self.codebook.weight, -0.5, 0.5)

    def forward(self, x):
        distance = torch.cdist(x, self.codebook.weight.unsqueeze(0).expand(x.shape[0], -1, -1))
        index = distance.argmin(dim=-1)
        codes = self.codebook(index)
        straight = x + (codes - x).detach()
        return straight, codes, index


class LatentActionModel(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(6, 32, 4, stride=2, padding=1),
            nn.GroupNorm(8, 32),
            nn.SiLU(),
            nn.Conv2d(32, width, 4, stride=2, padding=1),
            nn.GroupNorm(8, width),
            nn.SiLU(),
            nn.Conv2d(width, width, 3, padding=1),
        )
        self.quantizer = VectorQuantizer(64, width)
        self.context = nn.Conv2d(3, width, 4, stride=4)
        self.decoder = nn.Sequential(
            nn.Conv2d(2 * width, width, 3, padding=1),
            nn.SiLU(),
            nn.ConvTranspose2d(width, 32, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.ConvTranspose2d(32, 3, 4, stride=2, padding=1),
        )

    def forward(self, first, second):
        z = self.encoder(torch.cat([first, second], dim=1))
        b, c, h, w = z.shape
        flat = z.flatten(2).transpose(1, 2)
        straight, codes, _ = self.quantizer(flat)
        action = straight.transpose(1, 2).reshape(b, c, h, w)
        frame = self.decoder(torch.cat([action, self.context(first)], dim=1))
        return {"frame": frame, "encoded": flat, "quantized": codes}


def build_model():
    torch.manual_seed(3)
    return LatentActionModel()


def build_batch():
    torch.manual_seed(4)
    first = torch.rand(4, 3, 32, 32)
    second = (first + 0.1 * torch.randn_like(first)).clamp(0, 1)
    return (first, second), second


def loss_fn(output, batch):
    reconstruction = F.mse_loss(output["frame"], batch[1])
    codebook = F.mse_loss(output["quantized"], output["encoded"].detach())
    commitment = F.mse_loss(output["encoded"], output["quantized"].detach())
    return reconstruction + codebook + 0.25 * commitment
