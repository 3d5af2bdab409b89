import torch
import torch.nn as nn
import torch.nn.functional as F


class VectorQuantizer(nn.Module):
    def __init__(self, n_codes=16, dim=8, beta=0.25):
        super().__init__()
        self.codebook = nn.Embedding(n_codes, dim)
        nn.init.uniform_(self.codebook.weight, -1.0, 1.0)
        self.beta = beta

    def forward(self, z):
        dist = torch.cdist(z, self.codebook.weight)
        idx = dist.argmin(dim=1)
        q = self.codebook(idx)
        codebook_loss = F.mse_loss(q.detach(), z)
        commit_loss = F.mse_loss(z, q.detach())
        loss = codebook_loss + self.beta * commit_loss
        q = z + (q - z).detach()
        return q, loss, idx


class VQVAE(nn.Module):
    def __init__(self, d=20):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, 8))
        self.vq = VectorQuantizer()
        self.dec = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, d))

    def forward(self, x):
        q, vq_loss, idx = self.vq(self.enc(x))
        return self.dec(q), vq_loss, idx


def get_batch(centers, n=64):
    k = torch.randint(0, len(centers), (n,))
    return centers[k] + 0.05 * torch.randn(n, centers.shape[1])


if __name__ == "__main__":
    torch.manual_seed(0)
    centers = torch.randn(6, 20)
    model = VQVAE()
    optim = torch.optim.Adam(model.parameters(), lr=3e-3)
    start = model.vq.codebook.weight.detach().clone()
    for i in range(120):
        x = get_batch(centers)
        recon, vq_loss, idx = model(x)
        loss = F.mse_loss(recon, x) + vq_loss
        optim.zero_grad()
        loss.backward()
        optim.step()
        if i % 30 == 0:
            print(i, loss.item(), "codes used", idx.unique().numel())
    print("codebook moved", (model.vq.codebook.weight - start).norm().item())
