"""Siamese pretraining on two noisy views of short signals."""
import torch
import torch.nn.functional as F
from torch import nn


def signals(n, length=64):
    t = torch.linspace(0, 1, length)
    frequency = torch.randint(2, 8, (n, 1)).float()
    return torch.sin(6.28 * frequency * t + 6.28 * torch.rand(n, 1)).unsqueeze(1)


def view(x):
    gain = 0.6 + 0.8 * torch.rand(len(x), 1, 1)
    shift = int(torch.randint(0, 16, (1,)))
    return gain * x.roll(shift, -1) + 0.1 * torch.randn_like(x)


class Backbone(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, 16, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Conv1d(16, dim, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm1d(dim),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
        )

    def forward(self, x):
        return self.conv(x)


class SimSiam(nn.Module):
    def __init__(self, dim=32, bottleneck=8):
        super().__init__()
        self.encoder = Backbone(dim)
        self.projector = nn.Sequential(nn.Linear(dim, dim, bias=False), nn.BatchNorm1d(dim), nn.ReLU(), nn.Linear(dim, dim))
        self.predictor = nn.Sequential(
            nn.Linear(dim, bottleneck, bias=False), nn.BatchNorm1d(bottleneck), nn.ReLU(), nn.Linear(bottleneck, dim)
        )

    def forward(self, x1, x2):
        z1, z2 = self.projector(self.encoder(x1)), self.projector(self.encoder(x2))
        p1, p2 = self.predictor(z1), self.predictor(z2)
        return p1, p2, z1.detach(), z2.detach()


def main():
    torch.manual_seed(114)
    model = SimSiam()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    for step in range(25):
        x = signals(64)
        p1, p2, z1, z2 = model(view(x), view(x))
        loss = -0.5 * (F.cosine_similarity(p1, z2, dim=-1).mean() + F.cosine_similarity(p2, z1, dim=-1).mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 6 == 0:
            print(f"{step:3d} {loss.item():.4f} spread {F.normalize(z1, dim=-1).std(0).mean().item():.4f}")


if __name__ == "__main__":
    main()
