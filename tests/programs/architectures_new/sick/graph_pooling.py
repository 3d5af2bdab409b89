"""Classifies molecules with graph convolutions and two pooling stages."""

import torch
import torch.nn.functional as F
from torch import nn


class Convolution(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.self_weight = nn.Linear(inputs, outputs)
        self.neighbor_weight = nn.Linear(inputs, outputs, bias=False)

    def forward(self, x, adjacency):
        degree = adjacency.sum(dim=-1, keepdim=True).clamp(min=1)
        return F.relu(self.self_weight(x) + self.neighbor_weight(adjacency @ x / degree))


class TopPooling(nn.Module):
    def __init__(self, width, keep):
        super().__init__()
        self.score = nn.Linear(width, 1)
        self.keep = keep

    def forward(self, x, adjacency):
        score = torch.tanh(self.score(x).squeeze(-1))
        kept = score.topk(self.keep, dim=-1).indices
        rows = torch.arange(len(x)).unsqueeze(1)
        pooled = (x * score.unsqueeze(-1)).detach().numpy()[rows.numpy(), kept.numpy()]
        x = torch.from_numpy(pooled)
        adjacency = adjacency[rows, kept].gather(2, kept.unsqueeze(1).expand(-1, self.keep, -1))
        return x, adjacency


class MoleculeNet(nn.Module):
    def __init__(self, atoms=9, width=32):
        super().__init__()
        self.embedding = nn.Embedding(atoms, width)
        self.first = Convolution(width, width)
        self.pool1 = TopPooling(width, 10)
        self.second = Convolution(width, width)
        self.pool2 = TopPooling(width, 5)
        self.third = Convolution(width, width)
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, atoms, adjacency):
        x = self.first(self.embedding(atoms), adjacency)
        x, adjacency = self.pool1(x, adjacency)
        x = self.second(x, adjacency)
        x, adjacency = self.pool2(x, adjacency)
        x = self.third(x, adjacency)
        return self.head(torch.cat([x.mean(dim=1), x.amax(dim=1)], dim=-1))


def build_model():
    torch.manual_seed(45)
    return MoleculeNet()


def build_batch():
    torch.manual_seed(46)
    adjacency = (torch.rand(12, 18, 18) < 0.2).float().triu(1)
    adjacency = adjacency + adjacency.transpose(1, 2)
    return (torch.randint(0, 9, (12, 18)), adjacency), torch.randint(0, 2, (12,))


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
