import copy

import torch
import torch.nn as nn


class FeatureTokenizer(nn.Module):
    def __init__(self, features, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, dim) * 0.2)
        self.bias = nn.Parameter(torch.zeros(features, dim))
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))

    def forward(self, x):
        tokens = x.unsqueeze(-1) * self.weight + self.bias
        return torch.cat([self.cls.expand(len(x), -1, -1), tokens], 1)


class Tabular(nn.Module):
    def __init__(self, features=7, dim=16, depth=2):
        super().__init__()
        self.tokens = FeatureTokenizer(features, dim)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(dim, 2, 32, 0.0, batch_first=True) for _ in range(depth))
        self.head = nn.Linear(dim, 1)

    def forward(self, x):
        h = self.tokens(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h[:, 0]).squeeze(-1)


class Fit:
    def __init__(self, model, optimizer, loss_fn):
        self.model = torch.compile(copy.deepcopy(model), backend="eager")
        self.optimizer, self.loss_fn = optimizer, loss_fn

    def step(self, x, y):
        self.model.zero_grad()
        loss = self.loss_fn(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()


def rows(n):
    x = torch.randn(n, 7)
    return x, x[:, 0] * x[:, 1] + torch.relu(x[:, 2]) - 0.5 * x[:, 3]


if __name__ == "__main__":
    torch.manual_seed(130)
    model = Tabular()
    optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)
    fit = Fit(model, optimizer, nn.HuberLoss())
    for i in range(60):
        loss = fit.step(*rows(64))
        if i % 20 == 0:
            print(i, loss)
