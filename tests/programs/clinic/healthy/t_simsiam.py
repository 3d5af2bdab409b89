import torch
import torch.nn.functional as F
from torch import nn


class SimSiam(nn.Module):
    def __init__(self, inputs=24, width=64, dim=32):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(inputs, width), nn.BatchNorm1d(width), nn.ReLU(),
            nn.Linear(width, dim), nn.BatchNorm1d(dim, affine=False),
        )
        self.predictor = nn.Sequential(
            nn.Linear(dim, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, dim)
        )

    def forward(self, a, b):
        za, zb = self.encoder(a), self.encoder(b)
        pa, pb = self.predictor(za), self.predictor(zb)
        return -0.5 * (
            F.cosine_similarity(pa, zb.detach()).mean() + F.cosine_similarity(pb, za.detach()).mean()
        )


class Probe(nn.Module):
    """A linear classifier on features that it must not change."""

    def __init__(self, dim=32, classes=4):
        super().__init__()
        self.linear = nn.Linear(dim, classes)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=1e-2)

    def update(self, features, labels):
        loss = F.cross_entropy(self.linear(features.detach()), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def augment(x):
    keep = (torch.rand_like(x) < 0.8).float()
    return keep * x + 0.2 * torch.randn_like(x)


def main():
    torch.manual_seed(2)
    centres = 2 * torch.randn(4, 24)
    model, probe = SimSiam(), Probe()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 120)
    for step in range(120):
        labels = torch.randint(0, 4, (64,))
        x = centres[labels] + torch.randn(64, 24)
        loss = model(augment(x), augment(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            features = model.encoder(x)
        probed = probe.update(features, labels)
        if step % 30 == 0:
            print(f"{step}: {loss.item():.3f} probe {probed:.3f}")


if __name__ == "__main__":
    main()
