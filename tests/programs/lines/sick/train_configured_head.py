"""Builds a network from a description."""

import torch
import torch.nn.functional as F
from torch import nn


def final_activation(kind):
    if kind == "probability":
        return nn.Softmax(dim=-1)
    return nn.Identity()


def build(sizes, kind):
    layers = []
    for before, after in zip(sizes, sizes[1:]):
        layers += [nn.Linear(before, after), nn.ReLU()]
    layers[-1] = final_activation(kind)
    return nn.Sequential(*layers)


def main():
    torch.manual_seed(53)
    model = build([8, 32, 16, 1], "probability")
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    weights = torch.randn(8)
    for step in range(24):
        x = torch.randn(32, 8)
        wanted = (x @ weights > 0).float()
        loss = F.binary_cross_entropy(model(x).squeeze(1), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(step, f"{loss.item():.4f}")


main()
