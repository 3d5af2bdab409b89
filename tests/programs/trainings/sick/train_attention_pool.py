import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class AttentivePooling(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, 1, bias=False))

    def forward(self, frames):
        logits = self.score(frames).squeeze(-1)
        weights = F.softmax(logits, dim=0)
        return torch.einsum("bt,btd->bd", weights, frames)


class UtteranceClassifier(nn.Module):
    def __init__(self, feats=12, dim=24, classes=6):
        super().__init__()
        self.rnn = nn.GRU(feats, dim, batch_first=True)
        self.pool = AttentivePooling(dim)
        self.out = nn.Linear(dim, classes)

    def forward(self, x):
        h, _ = self.rnn(x)
        return self.out(self.pool(h))


def make_dataset(n=480, steps=15, feats=12, classes=6):
    g = torch.Generator().manual_seed(82)
    keys = torch.randn(classes, feats, generator=g) * 1.5
    y = torch.randint(0, classes, (n,), generator=g)
    x = torch.randn(n, steps, feats, generator=g)
    where = torch.randint(0, steps, (n,), generator=g)
    x[torch.arange(n), where] += keys[y]
    return TensorDataset(x, y)


def train():
    torch.manual_seed(81)
    model = UtteranceClassifier()
    loader = DataLoader(make_dataset(), batch_size=32, shuffle=True)
    optim = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(8):
        hits = total = 0
        for x, y in loader:
            optim.zero_grad()
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            loss.backward()
            optim.step()
            hits += (logits.argmax(1) == y).sum().item()
            total += len(y)
        print(f"epoch {epoch} acc {hits / total:.3f} loss {loss.item():.4f}")


train()
