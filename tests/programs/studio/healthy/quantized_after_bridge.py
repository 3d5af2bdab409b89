"""Vector-quantized autoencoder of waves."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class VectorQuantizer(nn.Module):
    def __init__(self, codes, dim, beta=0.25):
        super().__init__()
        self.codebook = nn.Embedding(codes, dim)
        nn.init.uniform_(self.codebook.weight, -0.3, 0.3)
        self.beta = beta

    def forward(self, z):
        distance = torch.cdist(z, self.codebook.weight)
        index = distance.argmin(dim=1)
        quantized = self.codebook(index)
        commitment = F.mse_loss(z, quantized.detach())
        codebook = F.mse_loss(quantized, z.detach())
        quantized = z + (quantized - z).detach()
        return quantized, codebook + self.beta * commitment, index


class Autoencoder(nn.Module):
    def __init__(self, length=32, dim=8, codes=16):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(length, 64), nn.ReLU(), nn.Linear(64, dim), nn.LayerNorm(dim))
        self.quantizer = VectorQuantizer(codes, dim)
        self.decoder = nn.Sequential(nn.Linear(dim, 64), nn.ReLU(), nn.Linear(64, length))

    def forward(self, x):
        z, extra, index = self.quantizer(self.encoder(x))
        return self.decoder(z), extra, index


def waves(n, length=32):
    frequency = torch.randint(1, 5, (n, 1)).float()
    phase = 6.2832 * torch.rand(n, 1)
    return torch.sin(frequency * torch.linspace(0, 6.2832, length) + phase)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for step in range(args.steps):
        x = waves(128)
        decoded, extra, index = model(x)
        loss = F.mse_loss(decoded, x) + extra
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item(), "codes used", index.unique().numel())


if __name__ == "__main__":
    main()
