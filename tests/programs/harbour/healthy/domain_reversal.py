"""Unsupervised domain adaptation with gradient reversal."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.weight * gradient, None


class Adapted(nn.Module):
    def __init__(self, inputs=12, width=32, classes=3):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.classify = nn.Linear(width, classes)
        self.domain = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x, weight):
        h = self.features(x)
        return self.classify(h), self.domain(Reverse.apply(h, weight)).squeeze(-1)


def main(steps=40):
    torch.manual_seed(0)
    model = Adapted()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    directions = torch.randn(12, 3)
    for step in range(steps):
        weight = 2 / (1 + math.exp(-10 * step / steps)) - 1
        source, target = torch.randn(32, 12), torch.randn(32, 12) + 0.7
        labels = (source @ directions).argmax(1)
        logits, domain = model(torch.cat([source, target]), weight)
        truth = torch.cat([torch.zeros(32), torch.ones(32)])
        loss = F.cross_entropy(logits[:32], labels) + F.binary_cross_entropy_with_logits(domain, truth)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    print(loss.item())


main()
