import torch
import torch.nn as nn
import torch.nn.functional as F


class GraphConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.root, self.neigh = nn.Linear(i, o), nn.Linear(i, o, bias=False)

    def forward(self, x, adj):
        return self.root(x) + self.neigh(adj @ x)


class GraphSage(nn.Module):
    def __init__(self, i, hidden, classes, layers=3):
        super().__init__()
        sizes = [i] + [hidden] * (layers - 1) + [classes]
        self.convs = nn.ModuleList(GraphConv(a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x, adj):
        for conv in self.convs[:-1]:
            x = F.dropout(F.relu(conv(x, adj)), 0.2, self.training)
        return self.convs[-1](x, adj)


def community_graph(n=120, classes=3):
    label = torch.arange(n) % classes
    p = torch.where(label[:, None] == label[None], 0.2, 0.02)
    adj = (torch.rand(n, n) < p).float()
    adj = ((adj + adj.T) > 0).float()
    adj = adj / adj.sum(1, keepdim=True).clamp(min=1)
    x = torch.randn(n, 10) + F.one_hot(label, 10) * 0.7
    return x, adj, label


def epoch(model, optimizer, graph, batches=20):
    x, adj, label = graph
    model.train()
    for _ in range(batches):
        mask = torch.rand(len(x)) < 0.3
        loss = F.cross_entropy(model(x, adj)[mask], label[mask])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main(epochs=6):
    torch.manual_seed(120)
    graph = community_graph()
    model = GraphSage(10, 16, 3)
    settings = {"lr": 0.01, "weight_decay": 5e-4}
    optimizer = torch.optim.Adam(model.parameters(), **settings)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for e in range(epochs):
        if e > 0:
            optimizer = torch.optim.Adam(model.parameters(), **settings)
        loss = epoch(model, optimizer, graph)
        scheduler.step()
        print(e, round(loss, 4))


main()
