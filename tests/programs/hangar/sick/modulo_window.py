import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class NeuralFactorization(nn.Module):
    def __init__(self, users, items, width=16):
        super().__init__()
        self.user = nn.Embedding(users, width)
        self.item = nn.Embedding(items, width)
        self.mlp = nn.Sequential(nn.Linear(2 * width, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, user, item):
        pair = torch.cat([self.user(user), self.item(item)], dim=-1)
        return self.mlp(pair).squeeze(-1) + (self.user(user) * self.item(item)).sum(-1)


class Accumulator:
    def __init__(self, optimizer, every):
        self.optimizer, self.every, self.seen = optimizer, every, 0

    def backward(self, loss):
        (loss / self.every).backward()
        self.seen += 1

    @property
    def due(self):
        return self.seen % self.every == 0

    def step(self):
        if self.due:
            self.optimizer.step()
            self.optimizer.zero_grad()


def ratings(rows, generator):
    user = torch.randint(0, 60, (rows,), generator=generator)
    item = torch.randint(0, 90, (rows,), generator=generator)
    return TensorDataset(user, item, torch.sin(user / 7.0) * torch.cos(item / 9.0))


def train(epochs=4, every=4):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    loader = DataLoader(ratings(32 * 23, generator), batch_size=32, shuffle=True, generator=generator)
    model = NeuralFactorization(60, 90)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(epochs):
        window = Accumulator(optimizer, every)
        optimizer.zero_grad()
        total = 0.0
        for user, item, rating in loader:
            loss = F.mse_loss(model(user, item), rating)
            window.backward(loss)
            window.step()
            total += loss.item()
        print(epoch, total / len(loader))


if __name__ == "__main__":
    train()
