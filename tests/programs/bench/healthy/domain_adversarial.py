"""Domain-adversarial training: the features are to confuse a domain classifier."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class GradientReversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return -ctx.weight * grad_output, None


class DANN(nn.Module):
    def __init__(self, d_in=10, dim=32, classes=3):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(d_in, dim), nn.ReLU(), nn.Linear(dim, dim), nn.ReLU())
        self.label = nn.Linear(dim, classes)
        self.domain = nn.Sequential(nn.Linear(dim, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x, weight):
        h = self.features(x)
        return self.label(h), self.domain(GradientReversal.apply(h, weight)).squeeze(1)


def main(steps=50):
    torch.manual_seed(1)
    w = torch.randn(10, 3)
    model = DANN()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(steps):
        weight = 2 / (1 + math.exp(-10 * step / steps)) - 1
        source, target = torch.randn(32, 10), torch.randn(32, 10) + 0.7
        labels = (source @ w).argmax(1)
        logits, d_source = model(source, weight)
        _, d_target = model(target, weight)
        domain_loss = F.binary_cross_entropy_with_logits(
            torch.cat([d_source, d_target]), torch.cat([torch.zeros(32), torch.ones(32)])
        )
        loss = F.cross_entropy(logits, labels) + domain_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"{step}: loss {loss.item():.4f} domain {domain_loss.item():.4f}")


main()
