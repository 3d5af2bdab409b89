"""Batch-hard triplet loss for face features."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(16)


def pairwise_distance(x):
    dot = x @ x.t()
    square = dot.diagonal()
    distance = square[:, None] - 2 * dot + square[None]
    distance = distance.clamp(min=0.0)
    return distance.sqrt()


def soft_triplet(embedding, label):
    distance = pairwise_distance(embedding)
    same = label[:, None] == label[None]
    other = ~torch.eye(len(label), dtype=torch.bool)
    positive = (distance * (same & other)).sum(1) / (same & other).sum(1).clamp(min=1)
    negative = (distance * ~same).sum(1) / (~same).sum(1).clamp(min=1)
    return F.softplus(positive - negative + 0.2).mean()


class FaceNet(nn.Module):
    def __init__(self, features=32, embed=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(features, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, embed)
        )

    def forward(self, x):
        return self.net(x)


people = torch.randn(10, 32)
who = torch.randint(10, (480,))
faces = people[who] + 0.5 * torch.randn(480, 32)
loader = DataLoader(TensorDataset(faces, who), batch_size=40, shuffle=True)
model = FaceNet()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(4):
    for x, label in loader:
        optimizer.zero_grad()
        loss = soft_triplet(model(x), label)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")
