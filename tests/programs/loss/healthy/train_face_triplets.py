"""Embeddings of faces, trained with triplets."""

import torch
import torch.nn.functional as F
from torch import nn


class FaceEncoder(nn.Module):
    def __init__(self, size=24, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(size, 64), nn.ReLU(), nn.Linear(64, width))

    def forward(self, x):
        return F.normalize(self.body(x), dim=1)


def triplets(people, count):
    who = torch.randint(0, len(people), (count,))
    other = (who + torch.randint(1, len(people), (count,))) % len(people)
    views = [
        people[index] + 0.6 * torch.randn(count, people.shape[1]) for index in (who, who, other)
    ]
    return views


torch.manual_seed(3)
people = torch.randn(40, 24)
model = FaceEncoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
margin = 0.3
for step in range(60):
    anchor, positive, negative = map(model, triplets(people, 64))
    dist_ap = (anchor - positive).pow(2).sum(1)
    dist_an = (anchor - negative).pow(2).sum(1)
    loss = F.relu(dist_ap - dist_an + margin).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
