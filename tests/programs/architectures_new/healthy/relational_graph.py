"""A relational graph network for a citation graph with several kinds of edges."""

import torch
import torch.nn.functional as F
from torch import nn

RELATIONS = ("cites", "cited_by", "same_author", "same_venue")


class RelationalLayer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.self_loop = nn.Linear(inputs, outputs)
        self.relations = nn.ModuleDict(
            {name: nn.Linear(inputs, outputs, bias=False) for name in RELATIONS}
        )
        self.norm = nn.LayerNorm(outputs)

    def forward(self, x, edges):
        y = self.self_loop(x)
        for name, (source, target) in edges.items():
            message = self.relations[name](x)[source]
            total = torch.zeros_like(y).index_add(0, target, message)
            count = torch.zeros(len(x)).index_add(0, target, torch.ones(len(target)))
            y = y + total / count.clamp(min=1).unsqueeze(-1)
        return F.relu(self.norm(y))


class RelationalNetwork(nn.Module):
    def __init__(self, features=32, width=48, classes=6):
        super().__init__()
        self.layers = nn.ModuleList(
            [RelationalLayer(features, width), RelationalLayer(width, width)]
        )
        self.head = nn.Linear(width, classes)

    def forward(self, x, edges):
        for layer in self.layers:
            x = layer(x, edges)
        return self.head(x)


def build_model():
    torch.manual_seed(19)
    return RelationalNetwork()


def build_batch():
    torch.manual_seed(20)
    edges = {name: tuple(torch.randint(0, 60, (2, 150))) for name in RELATIONS}
    return (torch.randn(60, 32), edges), torch.randint(0, 6, (60,))


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])


def build_optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=5e-3)
