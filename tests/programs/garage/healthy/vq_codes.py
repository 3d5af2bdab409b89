import torch
import torch.nn.functional as F
from torch import nn


class Quantizer(nn.Module):
    def __init__(self, codes=16, dim=8, decay=0.9, beta=0.25):
        super().__init__()
        self.decay, self.beta = decay, beta
        embedding = torch.randn(codes, dim)
        self.register_buffer("embedding", embedding)
        self.register_buffer("counts", torch.ones(codes))
        self.register_buffer("sums", embedding.clone())

    def forward(self, z):
        flat = z.permute(0, 2, 1).reshape(-1, z.size(1))
        index = torch.cdist(flat, self.embedding).argmin(dim=1)
        quantised = self.embedding[index]
        if self.training:
            self.update(flat.detach(), index)
        commitment = self.beta * F.mse_loss(flat, quantised.detach())
        quantised = flat + (quantised - flat).detach()
        return quantised.view(z.size(0), z.size(2), -1).permute(0, 2, 1), commitment

    @torch.no_grad()
    def update(self, flat, index):
        one_hot = F.one_hot(index, len(self.embedding)).float()
        self.counts.mul_(self.decay).add_(one_hot.sum(0), alpha=1 - self.decay)
        self.sums.mul_(self.decay).add_(one_hot.t() @ flat, alpha=1 - self.decay)
        total = self.counts.sum()
        smooth = (self.counts + 1e-5) / (total + len(self.counts) * 1e-5) * total
        self.embedding.copy_(self.sums / smooth[:, None])


class VQVAE(nn.Module):
    def __init__(self, width=24, dim=8):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(1, width, 4, stride=2, padding=1), nn.ReLU(), nn.Conv1d(width, dim, 4, stride=2, padding=1)
        )
        self.quantizer = Quantizer(dim=dim)
        self.decoder = nn.Sequential(
            nn.ConvTranspose1d(dim, width, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose1d(width, 1, 4, stride=2, padding=1),
        )

    def forward(self, x):
        z, commitment = self.quantizer(self.encoder(x))
        return self.decoder(z), commitment


def waves(count, length=32):
    t = torch.linspace(0, 1, length)
    frequency = torch.randint(1, 5, (count, 1))
    return torch.sin(2 * torch.pi * frequency * t + torch.rand(count, 1) * 6)[:, None]


def main():
    torch.manual_seed(47)
    model = VQVAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(40):
        x = waves(32)
        output, commitment = model(x)
        reconstruction = F.mse_loss(output, x)
        loss = reconstruction + commitment
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"{step} {reconstruction.item():.4f} {commitment.item():.4f}")


if __name__ == "__main__":
    main()
