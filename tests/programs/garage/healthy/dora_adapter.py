import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize


class LowRank(nn.Module):
    def __init__(self, weight, rank=4):
        super().__init__()
        self.a = nn.Parameter(torch.empty(rank, weight.size(1)))
        self.b = nn.Parameter(torch.zeros(weight.size(0), rank))
        self.magnitude = nn.Parameter(weight.detach().norm(dim=1, keepdim=True))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, weight):
        direction = weight + self.b @ self.a
        return self.magnitude * direction / direction.norm(dim=1, keepdim=True).detach()


class Regressor(nn.Module):
    def __init__(self, features=12, width=48):
        super().__init__()
        self.first = nn.Linear(features, width)
        self.second = nn.Linear(width, width)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(F.gelu(self.second(F.gelu(self.first(x))))).squeeze(-1)


def data(count, shift):
    x = torch.randn(count, 12)
    return x, torch.sin(x[:, 0] + shift) + 0.5 * x[:, 1] * x[:, 2]


def fit(model, parameters, shift, steps, lr):
    optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.0)
    for _ in range(steps):
        x, y = data(64, shift)
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(48)
    model = Regressor()
    print("base", fit(model, model.parameters(), 0.0, 40, 3e-3))
    model.requires_grad_(False)
    for layer in (model.first, model.second):
        parametrize.register_parametrization(layer, "weight", LowRank(layer.weight))
    model.head.requires_grad_(True)
    trainable = [p for p in model.parameters() if p.requires_grad]
    print("adapted", fit(model, trainable, 1.0, 40, 2e-3))
    for layer in (model.first, model.second):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    with torch.no_grad():
        x, y = data(200, 1.0)
        print("merged", F.mse_loss(model(x), y).item())


main()
