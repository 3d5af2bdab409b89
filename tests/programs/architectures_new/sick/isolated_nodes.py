"""Ranks web pages with deep graph convolutions on a normalized adjacency matrix."""

import torch
import torch.nn.functional as F
from torch import nn


class Propagation(nn.Module):
    def __init__(self, width, strength):
        super().__init__()
        self.linear = nn.Linear(width, width, bias=False)
        self.strength = strength

    def forward(self, x, first, operator):
        y = 0.9 * (operator @ x) + 0.1 * first
        return F.relu((1 - self.strength) * y + self.strength * self.linear(y))


class DeepGraphNet(nn.Module):
    def __init__(self, features=24, width=32, depth=16):
        super().__init__()
        self.input = nn.Linear(features, width)
        self.layers = nn.ModuleList([Propagation(width, 0.5 / (i + 1)) for i in range(depth)])
        self.output = nn.Linear(width, 1)
        self.edge_weight = nn.Parameter(torch.zeros(()))

    def operator(self, adjacency):
        weighted = adjacency * F.softplus(self.edge_weight)
        degree = weighted.sum(dim=1)
        scale = degree.pow(-0.5)
        return scale.unsqueeze(1) * weighted * scale.unsqueeze(0)

    def forward(self, x, adjacency):
        operator = self.operator(adjacency)
        first = x = F.relu(self.input(x))
        for layer in self.layers:
            x = layer(x, first, operator)
        return self.output(x).squeeze(-1)


def build_model():
    torch.manual_seed(61)
    return DeepGraphNet()


def build_batch():
    torch.manual_seed(62)
    adjacency = (torch.rand(80, 80) < 0.05).float().triu(1)
    adjacency = adjacency + adjacency.T
    adjacency[[3, 40]] = 0
    adjacency[:, [3, 40]] = 0
    return (torch.randn(80, 24), adjacency), torch.randn(80)


def loss_fn(output, batch):
    return F.mse_loss(output, batch[1])
