import torch
import torch.nn.functional as F
from torch import nn


class Quantizer(nn.Module):
    def __init__(self, codes=16, width=8, beta=1.0):
        super().__init__()
        self.codebook = nn.Embedding(codes, width)
        nn.init.uniform_(self.codebook.weight, -1, 1)
        self.beta = beta

    def forward(self, z):
        distance = torch.cdist(z, self.codebook.weight)
        indices = distance.argmin(-1)
        q = self.codebook(indices)
        loss = F.mse_loss(q, z.detach()) + self.beta * F.mse_loss(z, q.detach())
        return q, loss, indices


class VQVAE(nn.Module):
    def __init__(self, inputs=20, width=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(inputs, 48), nn.GELU(), nn.Linear(48, width))
        self.quantizer = Quantizer(width=width)
        self.decoder = nn.Sequential(nn.Linear(width, 48), nn.GELU(), nn.Linear(48, inputs))

    def forward(self, x):
        z = self.encoder(x)
        q, loss, indices = self.quantizer(z)
        return self.decoder(q), loss, indices


def clusters(n, centres):
    pick = torch.randint(0, len(centres), (n,))
    return centres[pick] + 0.1 * torch.randn(n, centres.size(1))


def main():
    torch.manual_seed(4)
    centres = torch.randn(12, 20)
    model = VQVAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(100):
        x = clusters(64, centres)
        recon, vq_loss, indices = model(x)
        loss = F.mse_loss(recon, x) + vq_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(step, f"{loss.item():.4f}", "codes", indices.unique().numel())


if __name__ == "__main__":
    main()
