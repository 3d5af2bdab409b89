import torch
import torch.nn as nn
import torch.nn.functional as F


class Graph:
    def __init__(self, x, edges, labels):
        self.x, self.edges, self.labels = x, edges, labels
        self.num_nodes = x.size(0)


def random_graph(nodes=60, communities=3, generator=None):
    labels = torch.randint(0, communities, (nodes,), generator=generator)
    same = labels[:, None] == labels[None, :]
    chance = torch.where(same, 0.25, 0.02)
    adjacency = torch.rand(nodes, nodes, generator=generator) < chance
    adjacency.fill_diagonal_(False)
    x = F.one_hot(labels, communities).float() + torch.randn(nodes, communities, generator=generator)
    return Graph(x, adjacency.nonzero().t(), labels)


class MessageLayer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * inputs, outputs), nn.ReLU())
        self.update = nn.Linear(inputs + outputs, outputs)
        self.outputs = outputs

    def forward(self, x, edges):
        source, destination = edges
        messages = self.message(torch.cat([x[source], x[destination]], dim=1))
        pooled = torch.zeros(x.size(0), self.outputs)
        pooled.index_add_(0, destination, messages)
        degree = torch.bincount(destination, minlength=x.size(0)).clamp(min=1)
        return self.update(torch.cat([x, pooled / degree[:, None]], dim=1))


class NodeClassifier(nn.Module):
    def __init__(self, inputs, hidden, classes, layers=2, dropout=0.1):
        super().__init__()
        sizes = [inputs] + [hidden] * layers
        self.layers = nn.ModuleList(MessageLayer(a, b) for a, b in zip(sizes, sizes[1:]))
        self.out = nn.Linear(hidden, classes)
        self.dropout = dropout

    def forward(self, graph):
        x = graph.x
        for layer in self.layers:
            x = F.elu(layer(x, graph.edges))
            x = F.dropout(x, self.dropout, self.training)
        return self.out(x)


def evaluate(model, graphs):
    model.eval()
    with torch.no_grad():
        hits = [(model(g).argmax(1) == g.labels).float().mean().item() for g in graphs]
    model.train()
    return sum(hits) / len(hits)


if __name__ == "__main__":
    torch.manual_seed(25)
    generator = torch.Generator().manual_seed(25)
    training = [random_graph(generator=generator) for _ in range(6)]
    validation = [random_graph(generator=generator) for _ in range(3)]
    model = NodeClassifier(3, 32, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
    for epoch in range(6):
        for graph in training:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(graph), graph.labels)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f} val {evaluate(model, validation):.3f}")
