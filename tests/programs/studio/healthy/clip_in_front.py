"""An ensemble of small networks on tabular data."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class EnsembleLinear(nn.Module):
    def __init__(self, inputs, outputs, members):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / inputs**0.5)
        self.r = nn.Parameter(torch.ones(members, inputs) + 0.1 * torch.randn(members, inputs))
        self.s = nn.Parameter(torch.ones(members, outputs))
        self.bias = nn.Parameter(torch.zeros(members, outputs))

    def forward(self, x):
        return (x * self.r) @ self.weight * self.s + self.bias


class Tabular(nn.Module):
    def __init__(self, features, members=4, width=32):
        super().__init__()
        self.members = members
        self.layers = nn.Sequential(
            EnsembleLinear(features, width, members),
            nn.ReLU(),
            EnsembleLinear(width, width, members),
            nn.ReLU(),
            EnsembleLinear(width, 1, members),
        )

    def forward(self, x):
        return self.layers(x[:, None].expand(-1, self.members, -1)).squeeze(-1)


def table(n, features):
    x = torch.randn(n, features)
    y = x[:, 0] * x[:, 1] + torch.sin(2 * x[:, 2]) + 3 * torch.distributions.StudentT(2.0).sample((n,))
    return x, y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    torch.manual_seed(0)
    x, y = table(512, 10)
    model = Tabular(10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=3e-4)
    for epoch in range(args.epochs):
        for rows in torch.randperm(len(x)).split(args.batch):
            model.train()
            optimizer.zero_grad()
            loss = F.mse_loss(model(x[rows]), y[rows, None].expand(-1, 4))
            loss.backward()
            if args.clip:
                nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
