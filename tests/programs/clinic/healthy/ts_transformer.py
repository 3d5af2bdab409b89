import math

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Series(Dataset):
    def __init__(self, n=320, length=25):
        generator = torch.Generator().manual_seed(3)
        time = torch.arange(length) / 4
        frequency = 0.5 + torch.rand(n, 1, generator=generator)
        phase = 6.28 * torch.rand(n, 1, generator=generator)
        noise = 0.05 * torch.randn(n, length, generator=generator)
        self.values = torch.sin(frequency * time + phase) + noise

    def __len__(self):
        return len(self.values)

    def __getitem__(self, i):
        return self.values[i, :-1, None], self.values[i, 1:, None]


class Positions(nn.Module):
    def __init__(self, dim, longest=64):
        super().__init__()
        position = torch.arange(longest)[:, None]
        step = torch.exp(-math.log(10000.0) * torch.arange(0, dim, 2) / dim)
        table = torch.zeros(longest, dim)
        table[:, 0::2] = torch.sin(position * step)
        table[:, 1::2] = torch.cos(position * step)
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[: x.shape[1]]


class CausalAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def mask(self, length):
        ones = torch.ones(length, length, dtype=torch.bool)
        return torch.triu(ones, diagonal=1)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(self.mask(x.shape[1]), float("-inf"))
        mixed = scores.softmax(dim=-1) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = CausalAttention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Forecaster(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.enter = nn.Linear(1, dim)
        self.positions = Positions(dim)
        self.layers = nn.Sequential(Layer(dim), Layer(dim))
        self.leave = nn.Linear(dim, 1)

    def forward(self, x):
        return self.leave(self.layers(self.positions(self.enter(x))))


def main():
    torch.manual_seed(14)
    loader = DataLoader(Series(), batch_size=32, shuffle=True)
    model = Forecaster()
    criterion = nn.HuberLoss(delta=0.5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(4):
        for past, future in loader:
            optimizer.zero_grad()
            loss = criterion(model(past), future)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
