"""Matches the nodes of two graphs with a siamese network on adjacency tensors."""

import torch
import torch.nn.functional as F
from torch import nn


class PairBlock(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.left = nn.Sequential(nn.Conv2d(inputs, width, 1), nn.ReLU(), nn.Conv2d(width, width, 1))
        self.right = nn.Sequential(nn.Conv2d(inputs, width, 1), nn.ReLU(), nn.Conv2d(width, width, 1))
        self.merge = nn.Conv2d(inputs + width, width, 1)
        self.norm = nn.InstanceNorm2d(width, affine=True)

    def forward(self, x):
        product = self.left(x) @ self.right(x) / x.shape[-1]
        return self.norm(self.merge(torch.cat([x, product], dim=1)))


class Siamese(nn.Module):
    def __init__(self, width=32, depth=4):
        super().__init__()
        sizes = [2] + depth * [width]
        self.blocks = nn.ModuleList([PairBlock(a, b) for a, b in zip(sizes, sizes[1:])])
        self.project = nn.Linear(width, width)

    def embed(self, graph):
        for block in self.blocks:
            graph = block(graph)
        return self.project(graph.amax(dim=3).transpose(1, 2))

    def forward(self, first, second):
        scores = self.embed(first) @ self.embed(second).transpose(1, 2)
        scores = scores / self.project.out_features**0.5
        return scores.softmax(dim=-1)


def _graph(batch, nodes):
    edges = (torch.rand(batch, nodes, nodes) < 0.3).float().triu(1)
    edges = edges + edges.transpose(1, 2)
    degree = torch.diag_embed(edges.sum(dim=2))
    return torch.stack([edges, degree / nodes], dim=1)


def build_model():
    torch.manual_seed(15)
    return Siamese()


def build_batch():
    torch.manual_seed(16)
    graph = _graph(4, 20)
    order = torch.randperm(20)
    return (graph, graph[:, :, order][:, :, :, order]), torch.argsort(order).expand(4, -1)


def loss_fn(output, batch):
    return F.cross_entropy(output.flatten(0, 1), batch[1].flatten())
