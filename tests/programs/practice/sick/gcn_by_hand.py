import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(9)


class GraphConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, adjacency):
        return adjacency @ (x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, inputs, hidden, classes, depth=3):
        super().__init__()
        self.first = GraphConv(inputs, hidden)
        self.hidden = [GraphConv(hidden, hidden) for _ in range(depth - 2)]
        self.last = GraphConv(hidden, classes)

    def forward(self, x, adjacency):
        x = F.elu(self.first(x, adjacency))
        for layer in self.hidden:
            x = F.elu(layer(x, adjacency))
        return self.last(x, adjacency)


def normalised(adjacency):
    adjacency = adjacency + torch.eye(len(adjacency))
    degree = adjacency.sum(1).rsqrt()
    return degree[:, None] * adjacency * degree[None]


nodes = 80
labels = torch.arange(nodes) % 2
same = labels[:, None] == labels[None]
edges = (torch.rand(nodes, nodes) < torch.where(same, 0.2, 0.03)).float()
edges = ((edges + edges.T) > 0).float().fill_diagonal_(0)
adjacency = normalised(edges)
x = torch.randn(nodes, 12)
x[:, 0] += labels
train_mask = torch.rand(nodes) < 0.6

model = GCN(12, 16, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(80):
    optimizer.zero_grad()
    logits = model(x, adjacency)
    loss = F.cross_entropy(logits[train_mask], labels[train_mask])
    loss.backward()
    optimizer.step()
    if epoch % 20 == 0:
        accuracy = (logits.argmax(1) == labels)[~train_mask].float().mean()
        print(epoch, loss.item(), accuracy.item())
