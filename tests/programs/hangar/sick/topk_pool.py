from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Graphs:
    features: torch.Tensor
    adjacency: torch.Tensor

    def select(self, index):
        rows = torch.arange(len(index)).unsqueeze(1)
        return Graphs(
            self.features[rows, index],
            self.adjacency[rows.unsqueeze(2), index.unsqueeze(2), index.unsqueeze(1)],
        )


class Convolution(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.own = nn.Linear(inputs, outputs)
        self.neighbours = nn.Linear(inputs, outputs, bias=False)

    def forward(self, graphs):
        degree = graphs.adjacency.sum(-1, keepdim=True).clamp(min=1)
        mean = graphs.adjacency @ graphs.features / degree
        return Graphs(F.relu(self.own(graphs.features) + self.neighbours(mean)), graphs.adjacency)


class Coarsen(nn.Module):
    def __init__(self, width, ratio=0.5):
        super().__init__()
        self.attention = nn.Linear(width, 1)
        self.ratio = ratio

    def forward(self, graphs):
        importance = torch.tanh(self.attention(graphs.features)).squeeze(-1)
        keep = max(1, int(self.ratio * importance.size(1)))
        _, index = importance.topk(keep, dim=1)
        smaller = graphs.select(index)
        return smaller


class GraphClassifier(nn.Module):
    def __init__(self, inputs=10, width=32, classes=4):
        super().__init__()
        self.convolutions = nn.ModuleList([Convolution(inputs, width), Convolution(width, width)])
        self.coarsen = nn.ModuleList([Coarsen(width), Coarsen(width)])
        self.head = nn.Linear(2 * width, classes)

    def forward(self, features, adjacency):
        graphs = Graphs(features, adjacency)
        readout = 0
        for convolution, coarsen in zip(self.convolutions, self.coarsen):
            graphs = coarsen(convolution(graphs))
            readout = readout + torch.cat([graphs.features.mean(1), graphs.features.amax(1)], dim=-1)
        return self.head(readout)


def build_model():
    torch.manual_seed(11)
    return GraphClassifier()


def build_batch():
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(12, 20, 10, generator=generator)
    adjacency = (torch.rand(12, 20, 20, generator=generator) < 0.2).float()
    adjacency = ((adjacency + adjacency.transpose(1, 2)) > 0).float()
    label = features.mean(1)[:, :4].argmax(-1)
    return {"features": features, "adjacency": adjacency, "label": label}


def loss_fn(output, batch):
    return F.cross_entropy(output, batch["label"])
