from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Column:
    name: str
    levels: int
    embedding: nn.Module = None

    def __post_init__(self):
        if self.embedding is None:
            self.embedding = nn.Embedding(self.levels, self.width)

    @property
    def width(self):
        return min(16, (self.levels + 1) // 2)

    def __call__(self, codes):
        return self.embedding(codes)


class TabularNet(nn.Module):
    def __init__(self, columns, numeric, classes):
        super().__init__()
        self.columns = columns
        self.tables = nn.ModuleDict({column.name: column.embedding for column in columns})
        width = sum(column.width for column in columns) + numeric
        self.norm = nn.BatchNorm1d(numeric)
        self.layers = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, classes))

    def forward(self, codes, values):
        parts = [column(codes[:, i]) for i, column in enumerate(self.columns)]
        return self.layers(torch.cat([*parts, self.norm(values)], dim=1))


def make_table(rows, rng):
    codes = np.stack([rng.integers(0, 24, rows), rng.integers(0, 40, rows)], axis=1)
    values = rng.normal(size=(rows, 5)).astype("float32")
    table = np.random.default_rng(99).integers(0, 3, (24, 40))
    label = table[codes[:, 0], codes[:, 1]]
    return torch.from_numpy(codes), torch.from_numpy(values), torch.from_numpy(label)


def fit(epochs=4, batch_size=64):
    torch.manual_seed(0)
    codes, values, label = make_table(1280, np.random.default_rng(1))
    model = TabularNet([Column("shop", 24), Column("item", 40)], 5, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(epochs):
        order = torch.randperm(len(label))
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            loss = F.cross_entropy(model(codes[rows], values[rows]), label[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, round(loss.item(), 4))


if __name__ == "__main__":
    fit()
