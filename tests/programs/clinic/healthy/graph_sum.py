import torch
import torch.nn.functional as F
from torch import nn


class MessagePassing(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.message = nn.Linear(dim, dim)
        self.update = nn.Linear(2 * dim, dim)

    def forward(self, h, source, target):
        messages = F.relu(self.message(h))[source]
        total = torch.zeros_like(h).index_add(0, target, messages)
        degree = torch.zeros(len(h), 1).index_add(0, target, torch.ones(len(target), 1))
        total = total / degree.clamp(min=1)
        return F.relu(self.update(torch.cat([h, total], dim=1)))


class GraphNetwork(nn.Module):
    def __init__(self, inputs=8, dim=32, depth=8, classes=3):
        super().__init__()
        self.enter = nn.Linear(inputs, dim)
        self.layers = nn.ModuleList(MessagePassing(dim) for _ in range(depth))
        self.head = nn.Linear(dim, classes)
        for layer in self.layers:
            for linear in (layer.message, layer.update):
                nn.init.kaiming_normal_(linear.weight)
                nn.init.zeros_(linear.bias)

    def forward(self, graph):
        h = F.relu(self.enter(graph["nodes"]))
        for layer in self.layers:
            h = layer(h, graph["source"], graph["target"])
        return self.head(h)


def random_graph(nodes, probability, generator):
    linked = torch.rand(nodes, nodes, generator=generator) < probability
    linked |= linked.T.clone()
    linked.fill_diagonal_(True)
    source, target = linked.nonzero(as_tuple=True)
    return {
        "nodes": torch.randn(nodes, 8, generator=generator),
        "source": source,
        "target": target,
    }


def build_model():
    torch.manual_seed(46)
    return GraphNetwork()


def build_batch():
    generator = torch.Generator().manual_seed(47)
    graph = random_graph(60, 0.3, generator)
    return graph, torch.randint(0, 3, (60,), generator=generator)


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
