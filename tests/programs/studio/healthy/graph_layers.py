"""A relational graph network on a small random graph."""

import torch
from torch import nn
from torch.nn import functional as F


class RelationConv(nn.Module):
    def __init__(self, inputs, outputs, relations):
        super().__init__()
        self.root = nn.Linear(inputs, outputs)
        self.relations = nn.ModuleDict({name: nn.Linear(inputs, outputs, bias=False) for name in relations})

    def forward(self, x, edges):
        out = self.root(x)
        for name, (source, target) in edges.items():
            degree = torch.zeros(len(x)).index_add(0, target, torch.ones(len(target))).clamp(min=1)
            message = self.relations[name](x)[source] / degree[target, None]
            out = out.index_add(0, target, message)
        return out


class GraphNet(nn.Module):
    def __init__(self, inputs, classes, relations, width=24):
        super().__init__()
        self.first = RelationConv(inputs, width, relations)
        self.second = RelationConv(width, width, relations)
        self.classifier = nn.Linear(width, classes)

    def forward(self, x, edges):
        x = F.relu(self.first(x, edges))
        x = F.dropout(x, 0.2, self.training)
        return self.classifier(F.relu(self.second(x, edges)))


def random_graph(nodes, count):
    return torch.randint(0, nodes, (count,)), torch.randint(0, nodes, (count,))


def build_model():
    torch.manual_seed(0)
    return GraphNet(8, 3, ["cites", "written_by"])


def build_batch():
    torch.manual_seed(1)
    x = torch.randn(40, 8)
    edges = {"cites": random_graph(40, 120), "written_by": random_graph(40, 80)}
    return {"x": x, "edges": edges}, torch.randint(0, 3, (40,))


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
