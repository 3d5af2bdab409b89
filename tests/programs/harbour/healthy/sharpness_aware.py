"""Sharpness-aware minimisation of a small classifier."""

import torch
import torch.nn.functional as F
from torch import nn


class SharpnessAware:
    def __init__(self, base, radius=0.05):
        self.base, self.radius = base, radius
        self.parameters = [p for group in base.param_groups for p in group["params"]]

    @torch.no_grad()
    def climb(self):
        norm = torch.stack([p.grad.norm() for p in self.parameters]).norm() + 1e-12
        self.shifts = [p.grad * (self.radius / norm) for p in self.parameters]
        for parameter, shift in zip(self.parameters, self.shifts):
            parameter.add_(shift)
        self.base.zero_grad()

    @torch.no_grad()
    def descend(self):
        for parameter, shift in zip(self.parameters, self.shifts):
            parameter.sub_(shift)
        self.base.step()
        self.base.zero_grad()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(15, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU(), nn.Linear(48, 5))
    optimizer = SharpnessAware(torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    directions = torch.randn(15, 5)
    for _ in range(40):
        x = torch.randn(64, 15)
        y = (x @ directions).argmax(1)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.climb()
        F.cross_entropy(model(x), y).backward()
        optimizer.descend()
    print(loss.item())


main()
