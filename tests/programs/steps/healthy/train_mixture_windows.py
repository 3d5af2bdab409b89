"""Density of two-dimensional points by a small mixture network, in micro-batches."""

import torch
from torch import nn


class Mixture(nn.Module):
    def __init__(self, parts=4):
        super().__init__()
        self.weight = nn.Linear(1, parts)
        self.centre = nn.Linear(1, parts)
        self.width = nn.Linear(1, parts)

    def negative_log_likelihood(self, x, y):
        log_weight = torch.log_softmax(self.weight(x), -1)
        width = self.width(x)
        log_density = -0.5 * ((y - self.centre(x)) * torch.exp(-width)).square() - width
        return -torch.logsumexp(log_weight + log_density, -1)


def batch(count):
    x = torch.rand(count, 1) * 2 - 1
    sign = torch.where(torch.rand(count, 1) < 0.5, -1.0, 1.0)
    return x, sign * (0.5 + x.square()) + 0.05 * torch.randn(count, 1)


def train(steps=40, micro_batches=5, rows=24):
    torch.set_num_threads(1)
    torch.manual_seed(3)
    model = Mixture()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        for _ in range(micro_batches):
            x, y = batch(rows)
            loss = model.negative_log_likelihood(x, y).sum() / (len(x) * micro_batches)
            loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f}")


train()
