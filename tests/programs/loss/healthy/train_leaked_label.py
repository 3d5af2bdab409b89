"""Predicts whether a customer leaves, from a table with a score of an earlier model."""

import torch
from torch import nn
from torch.nn import functional


class Churn(nn.Module):
    def __init__(self, features=9):
        super().__init__()
        self.rest = nn.Sequential(nn.Linear(features, 24), nn.ReLU(), nn.Linear(24, 2))

    def forward(self, table, prior):
        return self.rest(table) + prior


def table(count=64):
    features = torch.randn(count, 9)
    label = (features[:, 0] + 0.5 * torch.randn(count) > 0).long()
    score = torch.stack([-features[:, 0], features[:, 0]], dim=1) * 0.4
    return features, score.float(), label


def main():
    torch.manual_seed(0)
    model = Churn()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(25):
        features, score, label = table()
        loss = functional.cross_entropy(model(features, score), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(step, round(loss.item(), 4))


if __name__ == "__main__":
    main()
