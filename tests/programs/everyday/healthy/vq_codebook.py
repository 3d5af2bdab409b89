import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits

torch.manual_seed(1)


class Codebook(nn.Module):
    def __init__(self, size, dim):
        super().__init__()
        self.codes = nn.Parameter(0.3 * torch.randn(size, dim))

    def forward(self, z):
        distance = torch.cdist(z.detach(), self.codes.detach())
        nearest = self.codes[distance.argmin(1)]
        loss = F.mse_loss(nearest, z.detach()) + 0.25 * F.mse_loss(z, nearest.detach())
        return z + (nearest - z).detach(), loss


class VQAutoencoder(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, dim))
        self.codebook = Codebook(16, dim)
        self.decoder = nn.Sequential(nn.Linear(dim, 48), nn.ReLU(), nn.Linear(48, 64))

    def forward(self, x):
        quantised, loss = self.codebook(self.encoder(x))
        return self.decoder(quantised), loss


x = torch.tensor(load_digits().data, dtype=torch.float32) / 16
model = VQAutoencoder()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(5):
    for rows in torch.randperm(len(x)).split(64):
        output, vq = model(x[rows])
        loss = F.mse_loss(output, x[rows]) + vq
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
