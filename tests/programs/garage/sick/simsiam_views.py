import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class SimSiam(nn.Module):
    def __init__(self, features=24, dim=32, hidden=16):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(features, 64),
            nn.BatchNorm1d(64),
            nn.ReLU(inplace=True),
            nn.Linear(64, dim),
            nn.BatchNorm1d(dim, affine=False),
        )
        self.predictor = nn.Sequential(
            nn.Linear(dim, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, dim)
        )

    def forward(self, a, b):
        z1, z2 = self.encoder(a), self.encoder(b)
        p1, p2 = self.predictor(z1), self.predictor(z2)
        return p1, p2, z1, z2


class Augment:
    def __init__(self, noise=0.2, drop=0.2):
        self.noise, self.drop = noise, drop

    def __call__(self, x):
        keep = (torch.rand_like(x) > self.drop).float()
        return keep * (x + self.noise * torch.randn_like(x))


def adjust_rate(optimizer, base, epoch, epochs):
    rate = base * 0.5 * (1.0 + torch.cos(torch.tensor(torch.pi * epoch / epochs)).item())
    for group in optimizer.param_groups:
        group["lr"] = base if group.get("fix") else rate


def main():
    torch.manual_seed(18)
    centres = torch.randn(5, 24)
    data = centres[torch.randint(0, 5, (320,))] + 0.3 * torch.randn(320, 24)
    loader = DataLoader(TensorDataset(data), batch_size=64, shuffle=True, drop_last=True)
    model, augment = SimSiam(), Augment()
    criterion = nn.CosineSimilarity(dim=1)
    optimizer = torch.optim.SGD(
        [{"params": model.encoder.parameters()}, {"params": model.predictor.parameters(), "fix": True}],
        lr=0.05,
        momentum=0.9,
        weight_decay=1e-4,
    )
    for epoch in range(6):
        adjust_rate(optimizer, 0.05, epoch, 6)
        for (x,) in loader:
            p1, p2, z1, z2 = model(augment(x), augment(x))
            loss = -(criterion(p1, z2).mean() + criterion(p2, z1).mean()) * 0.5
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        spread = F.normalize(z1.detach(), dim=1).std(dim=0).mean().item()
        print(f"epoch {epoch} loss {loss.item():.4f} spread {spread:.4f}")


if __name__ == "__main__":
    main()
