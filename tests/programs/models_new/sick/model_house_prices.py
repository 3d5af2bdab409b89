import torch
import torch.nn as nn


class PriceModel(nn.Module):
    def __init__(self, towns=10):
        super().__init__()
        self.town = nn.Embedding(towns, 4)
        self.mlp = nn.Sequential(nn.Linear(4 + 5, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, features, town):
        return self.mlp(torch.cat([features, self.town(town)], dim=-1))


def huber(error, delta=1.0):
    small = error.abs() <= delta
    return torch.where(small, 0.5 * error ** 2, delta * (error.abs() - 0.5 * delta)).mean()


def build_model():
    torch.manual_seed(171)
    return PriceModel()


def build_batch():
    g = torch.Generator().manual_seed(172)
    x = torch.randn(64, 5, generator=g)
    town = torch.randint(0, 10, (64,), generator=g)
    return x, town, 2 * x[:, 0] + x[:, 1] + 0.2 * town


def loss_fn(output, batch):
    price = batch[2]
    return huber(output - price)
