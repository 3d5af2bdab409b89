"""Variational autoencoder of short waves."""

import torch
from torch import nn
from torch.nn import functional


class WaveVAE(nn.Module):
    def __init__(self, length=32, latent=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(length, 48), nn.ReLU(), nn.Linear(48, 2 * latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 48), nn.ReLU(), nn.Linear(48, length))

    def forward(self, wave):
        mean, log_variance = self.encoder(wave).chunk(2, dim=1)
        scale = torch.exp(0.5 * log_variance)
        code = mean + scale * torch.randn_like(scale)
        return self.decoder(code), mean, log_variance


def waves(count=64):
    grid = torch.linspace(0, 6.283, 32)
    phase, pitch = 6.283 * torch.rand(count, 1), 1 + 2 * torch.rand(count, 1)
    return torch.sin(pitch * grid + phase)


def main():
    torch.manual_seed(0)
    model = WaveVAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(40):
        wave = waves()
        output, mean, log_variance = model(wave)
        kl = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1).mean()
        loss = functional.mse_loss(output, wave, reduction="sum") / len(wave) + 0.1 * kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, round(loss.item(), 3))


if __name__ == "__main__":
    main()
