"""Self-supervised features of noisy signals from two views."""

import torch
from torch import nn
from torch.nn import functional as F


class Twin(nn.Module):
    def __init__(self, size=24, width=48, code=16):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(size, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, code)
        )
        self.predictor = nn.Sequential(nn.Linear(code, 12), nn.ReLU(), nn.Linear(12, code))

    def forward(self, first, second):
        z1, z2 = self.encoder(first), self.encoder(second)
        p1, p2 = self.predictor(z1), self.predictor(z2)
        return p1, p2, z1.detach(), z2.detach()


def distance(p, z):
    return -F.cosine_similarity(p, z, dim=-1).mean()


def views(base):
    return base + 0.2 * torch.randn_like(base), base * (1 + 0.2 * torch.randn(len(base), 1))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Twin()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    modes = torch.randn(6, 24)
    for step in range(50):
        base = modes[torch.randint(6, (64,))] + 0.5 * torch.randn(64, 24)
        p1, p2, z1, z2 = model(*views(base))
        loss = 0.5 * distance(p1, z2) + 0.5 * distance(p2, z1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f} spread {z1.std(0).mean().item():.3f}")


main()
