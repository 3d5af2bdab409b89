"""Mixture density network for a one-dimensional inverse problem with a few far-away targets."""
import math

import torch
import torch.nn as nn


class MixtureDensity(nn.Module):
    def __init__(self, hidden=32, components=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, hidden), nn.Tanh())
        self.weights = nn.Linear(hidden, components)
        self.means = nn.Linear(hidden, components)
        self.log_scales = nn.Linear(hidden, components)

    def forward(self, x):
        h = self.body(x)
        return torch.log_softmax(self.weights(h), dim=-1), self.means(h), self.log_scales(h)


def build_model():
    torch.manual_seed(201)
    return MixtureDensity()


def build_batch():
    g = torch.Generator().manual_seed(202)
    y = torch.rand(48, 1, generator=g) * 2 - 1
    x = y + 0.4 * torch.sin(6 * y) + 0.05 * torch.randn(48, 1, generator=g)
    y[::12] += 30.0
    return x, y


def loss_fn(output, batch):
    log_weight, mean, log_scale = output
    z = (batch[1] - mean) * torch.exp(-log_scale)
    log_density = -0.5 * z ** 2 - log_scale - 0.5 * math.log(2 * math.pi)
    log_likelihood = torch.logsumexp(log_weight + log_density, dim=-1)
    return -log_likelihood.mean()
