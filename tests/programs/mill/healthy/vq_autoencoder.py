import argparse
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Quantised:
    codes: Tensor
    indices: Tensor
    loss: Tensor

    @property
    def perplexity(self):
        shares = torch.bincount(self.indices.flatten()).float()
        shares = shares[shares > 0] / shares.sum()
        return torch.exp(-(shares * shares.log()).sum()).item()


class VectorQuantiser(nn.Module):
    def __init__(self, count, width, commitment=0.25):
        super().__init__()
        self.codebook = nn.Embedding(count, width)
        self.commitment = commitment
        nn.init.uniform_(self.codebook.weight, -1 / width, 1 / width)

    def nearest(self, vectors):
        with torch.no_grad():
            return torch.cdist(vectors.flatten(0, 1), self.codebook.weight).argmin(1)

    def forward(self, vectors):
        indices = self.nearest(vectors).view(vectors.shape[:-1])
        codes = self.codebook(indices)
        codebook_loss = F.mse_loss(codes, vectors.detach())
        commitment_loss = F.mse_loss(codes.detach(), vectors)
        codes = vectors + (codes - vectors).detach()
        return Quantised(codes, indices, codebook_loss + self.commitment * commitment_loss)


class SignalVQ(nn.Module):
    def __init__(self, width=16, codes=24):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(1, 32, 4, 2, 1), nn.GELU(), nn.Conv1d(32, width, 4, 2, 1)
        )
        self.quantiser = VectorQuantiser(codes, width)
        self.decoder = nn.Sequential(
            nn.ConvTranspose1d(width, 32, 4, 2, 1), nn.GELU(), nn.ConvTranspose1d(32, 1, 4, 2, 1)
        )

    def forward(self, signal):
        vectors = self.encoder(signal).transpose(1, 2)
        quantised = self.quantiser(vectors)
        return self.decoder(quantised.codes.transpose(1, 2)), quantised


def draw(count, length=32):
    time = torch.arange(length) / length
    pitch = torch.randint(1, 6, (count, 1)).float()
    phase = torch.rand(count, 1) * 6.28
    wave = torch.sin(6.28 * pitch * time + phase)
    return TensorDataset((wave + 0.05 * torch.randn_like(wave)).unsqueeze(1))


def train(model, loader, optimizer, epochs):
    for epoch in range(epochs):
        for (signal,) in loader:
            rebuilt, quantised = model(signal)
            loss = F.mse_loss(rebuilt, signal) + quantised.loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item(), quantised.perplexity)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--codes", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(33)
    model = SignalVQ(codes=args.codes)
    loader = DataLoader(draw(256), batch_size=32, shuffle=True)
    train(model, loader, torch.optim.Adam(model.parameters(), lr=1e-3), args.epochs)


if __name__ == "__main__":
    main()
