from types import SimpleNamespace

import torch
from torch import nn

CONFIG = SimpleNamespace(steps=40, lr=2e-3, batch=8, size=20, classes=3, seed=12)


class SegNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        )
        self.decoder = nn.Sequential(
            nn.Upsample(scale_factor=2), nn.Conv2d(32, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, classes, 1)
        )

    def forward(self, x):
        out = self.decoder(self.encoder(x))
        return out


def batch(cfg):
    y = torch.zeros(cfg.batch, cfg.classes, cfg.size, cfg.size)
    for b in range(cfg.batch):
        for c in range(cfg.classes):
            if torch.rand(1) < 0.7:
                top, left = torch.randint(0, cfg.size - 8, (2,)).tolist()
                y[b, c, top : top + 8, left : left + 8] = 1
    x = y + 0.3 * torch.randn_like(y)
    return x, y


def fit(cfg):
    torch.manual_seed(cfg.seed)
    model = SegNet(cfg.classes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.full((cfg.classes, 1, 1), 2.0))
    for step in range(cfg.steps):
        x, y = batch(cfg)
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"{step:3d} {loss.item():.4f}")
    return model


if __name__ == "__main__":
    fit(CONFIG)
