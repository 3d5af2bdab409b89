import torch
import torch.nn as nn
import torch.nn.functional as F


class Quantiser(nn.Module):
    def __init__(self, codes=32, dim=8, commitment=0.25):
        super().__init__()
        self.codebook = nn.Embedding(codes, dim)
        nn.init.uniform_(self.codebook.weight, -0.5, 0.5)
        self.commitment = commitment

    def forward(self, z):
        flat = z.permute(0, 2, 3, 1).reshape(-1, z.shape[1])
        index = torch.cdist(flat, self.codebook.weight).argmin(1)
        q = self.codebook(index).view(z.shape[0], z.shape[2], z.shape[3], -1).permute(0, 3, 1, 2)
        loss = F.mse_loss(q, z.detach()) + self.commitment * F.mse_loss(z, q.detach())
        q = z + (q - z).detach()
        return q, loss, index


class VQVAE(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1), nn.ReLU(), nn.Conv2d(16, dim, 1))
        self.quantiser = Quantiser(dim=dim)
        self.decoder = nn.Sequential(nn.Conv2d(dim, 16, 3, 1, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1))

    def forward(self, x):
        q, loss, index = self.quantiser(self.encoder(x))
        return self.decoder(q), loss, index


def images(n):
    stripes = torch.sin(torch.arange(12)[None, :] * (0.3 + torch.rand(n, 1)) + 6 * torch.rand(n, 1))
    return stripes[:, None, None, :].expand(n, 1, 12, 12).contiguous()


def main():
    torch.manual_seed(15)
    model = VQVAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, amsgrad=False)
    for step in range(120):
        x = images(32)
        recon, vq, index = model(x)
        error = F.mse_loss(recon, x)
        (error + vq).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 30 == 0:
            print(step, error.item(), index.unique().numel())


main()
