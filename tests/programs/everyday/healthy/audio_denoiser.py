"""Classify short sounds by the spectrum of learned filters."""

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3)
SAMPLES, CLASSES = 256, 4


def make_sounds(n):
    label = torch.randint(CLASSES, (n,))
    t = torch.arange(SAMPLES) / SAMPLES
    freq = 6 + 9 * label.float()
    wave = torch.sin(2 * torch.pi * freq[:, None] * t + torch.rand(n, 1) * 6)
    return (wave + 0.4 * torch.randn_like(wave)).unsqueeze(1), label


class SpectralNet(nn.Module):
    def __init__(self, filters=4):
        super().__init__()
        self.front = nn.Conv1d(1, filters, 9, padding=4)
        self.head = nn.Sequential(
            nn.Linear(filters * (SAMPLES // 2 + 1), 64), nn.ReLU(), nn.Linear(64, CLASSES)
        )

    def spectrum(self, x):
        spec = torch.fft.rfft(x).abs()
        return torch.log1p(spec).float()

    def forward(self, x):
        x = self.front(x)
        return self.head(self.spectrum(x).flatten(1))


train = DataLoader(TensorDataset(*make_sounds(512)), batch_size=32, shuffle=True)
val_x, val_y = make_sounds(128)
net = SpectralNet()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()

for epoch in range(4):
    net.train()
    running = 0.0
    for x, y in train:
        optimizer.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        optimizer.step()
        running += loss.item() * len(x)
    net.eval()
    with torch.no_grad():
        acc = (net(val_x).argmax(1) == val_y).float().mean().item()
    print(f"epoch {epoch} loss {running / 512:.3f} val acc {acc:.2%}")
