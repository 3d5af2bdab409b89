"""Siamese verification: do two signatures belong to the same person?"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(5)


class Pairs(Dataset):
    def __init__(self, n, people=12, dim=40):
        generator = torch.Generator().manual_seed(n)
        self.style = torch.randn(people, dim, generator=torch.Generator().manual_seed(1))
        self.first = torch.randint(people, (n,), generator=generator)
        same = torch.rand(n, generator=generator) < 0.5
        other = torch.randint(people, (n,), generator=generator)
        self.second = torch.where(same, self.first, other)
        self.noise = 0.3 * torch.randn(n, 2, dim, generator=generator)

    def __len__(self):
        return len(self.first)

    def __getitem__(self, i):
        a = self.style[self.first[i]] + self.noise[i, 0]
        b = self.style[self.second[i]] + self.noise[i, 1]
        return a, b, (self.first[i] == self.second[i]).float()


class Verifier(nn.Module):
    def __init__(self, dim=40, width=64):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim, width), nn.ReLU(), nn.Linear(width, 16))
        self.score = nn.Linear(16, 1)

    def embed(self, x):
        return self.encoder(x)

    def forward(self, a, b):
        gap = (self.embed(a) - self.embed(b)).abs()
        return self.score(gap).squeeze(1)


def accuracy(model, loader):
    hits = total = 0
    model.eval()
    with torch.no_grad():
        for a, b, y in loader:
            hits += ((model(a, b) > 0) == (y > 0.5)).sum().item()
            total += len(y)
    model.train()
    return hits / total


model = Verifier()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
train = DataLoader(Pairs(640), batch_size=32, shuffle=True)
val = DataLoader(Pairs(128), batch_size=64)
for epoch in range(5):
    for a, b, y in train:
        loss = F.binary_cross_entropy_with_logits(model(a, b), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {accuracy(model, val):.3f}")
