import torch
import torch.nn as nn
import torch.nn.functional as F


class VectorQuantizer(nn.Module):
    def __init__(self, codes=24, dim=6, beta=0.25):
        super().__init__()
        self.codebook = nn.Embedding(codes, dim)
        nn.init.normal_(self.codebook.weight, std=0.5)
        self.beta = beta

    def forward(self, z):
        with torch.no_grad():
            index = torch.cdist(z, self.codebook.weight).argmin(dim=1)
        q = self.codebook(index)
        codebook_loss = F.mse_loss(q.detach(), z)
        commitment_loss = F.mse_loss(z, q.detach())
        q = z + (q - z).detach()
        return q, codebook_loss + self.beta * commitment_loss, index


class VQAutoencoder(nn.Module):
    def __init__(self, d=12, dim=6):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, dim))
        self.quantizer = VectorQuantizer(dim=dim)
        self.decoder = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, d))

    def forward(self, x):
        q, vq_loss, index = self.quantizer(self.encoder(x))
        return self.decoder(q), vq_loss, index


def mixture(n, means, g):
    k = torch.randint(0, len(means), (n,), generator=g)
    return means[k] + 0.2 * torch.randn(n, means.shape[1], generator=g)


def fit(model, means, g, steps=180):
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        x = mixture(128, means, g)
        recon, vq_loss, index = model(x)
        rec_loss = F.mse_loss(recon, x)
        loss = rec_loss + vq_loss
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 30 == 0:
            print(f"{step} rec {rec_loss.item():.4f} vq {vq_loss.item():.4f} used {index.unique().numel()}")


if __name__ == "__main__":
    torch.manual_seed(221)
    g = torch.Generator().manual_seed(222)
    fit(VQAutoencoder(), torch.randn(16, 12, generator=g), g)
