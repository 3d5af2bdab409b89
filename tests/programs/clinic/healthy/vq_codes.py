import torch
import torch.nn.functional as F
from torch import nn


class VectorQuantiser(nn.Module):
    def __init__(self, codes=32, dim=8, commitment=2.0):
        super().__init__()
        self.codebook = nn.Embedding(codes, dim)
        nn.init.uniform_(self.codebook.weight, -0.2, 0.2)
        self.commitment = commitment

    def forward(self, z):
        flat = z.permute(0, 2, 3, 1)
        distance = torch.cdist(flat.flatten(0, 2), self.codebook.weight)
        index = distance.argmin(dim=1).view(flat.shape[:-1])
        quantised = self.codebook(index)
        loss = F.mse_loss(quantised, flat.detach())
        loss = loss + self.commitment * F.mse_loss(flat, quantised.detach())
        quantised = flat + (quantised - flat).detach()
        return quantised.permute(0, 3, 1, 2), loss


class Encoder(nn.Module):
    def __init__(self, width=16, dim=8):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 4, stride=2, padding=1)
        self.conv2 = nn.Conv2d(width, width, 4, stride=2, padding=1)
        self.project = nn.Conv2d(width, dim, 1)

    def forward(self, x):
        return self.project(F.elu(self.conv2(F.elu(self.conv1(x)))))


class Decoder(nn.Module):
    def __init__(self, width=16, dim=8):
        super().__init__()
        self.project = nn.Conv2d(dim, width, 1)
        self.up1 = nn.ConvTranspose2d(width, width, 4, stride=2, padding=1)
        self.up2 = nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1)

    def forward(self, z):
        return self.up2(F.elu(self.up1(F.elu(self.project(z)))))


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.quantiser = VectorQuantiser()
        self.decoder = Decoder()

    def forward(self, images):
        quantised, loss = self.quantiser(self.encoder(images))
        return self.decoder(quantised), loss


def build_model():
    torch.manual_seed(50)
    return AutoEncoder()


def build_batch():
    generator = torch.Generator().manual_seed(51)
    coarse = torch.randn(16, 1, 4, 4, generator=generator)
    return F.interpolate(coarse, size=16, mode="bilinear"), coarse


def loss_fn(output, batch):
    restored, codebook_loss = output
    return F.mse_loss(restored, batch[0]) + codebook_loss
