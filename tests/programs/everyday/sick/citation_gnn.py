import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(80)
NODES, CLASSES = 120, 3


def make_graph():
    label = torch.randint(CLASSES, (NODES,))
    same = label[:, None] == label[None]
    edge = torch.rand(NODES, NODES) < torch.where(same, 0.12, 0.02)
    adjacency = (edge | edge.t()).float()
    adjacency.fill_diagonal_(1)
    degree = adjacency.sum(1).rsqrt()
    features = torch.randn(NODES, 16) + 0.7 * F.one_hot(label, 16).float()
    return degree[:, None] * adjacency * degree, features, label


class GCNLayer(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))

    def forward(self, x, adjacency):
        residual = x
        if self.inputs != self.outputs:
            residual = nn.Linear(self.inputs, self.outputs)(x)
        return adjacency @ x @ self.weight + residual


class GCN(nn.Module):
    def __init__(self, features=16, hidden=32):
        super().__init__()
        self.conv1 = GCNLayer(features, hidden)
        self.conv2 = GCNLayer(hidden, CLASSES)

    def forward(self, x, adjacency):
        h = F.dropout(F.relu(self.conv1(x, adjacency)), 0.3, self.training)
        return self.conv2(h, adjacency)


adjacency, features, label = make_graph()
train_mask = torch.rand(NODES) < 0.4
model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(80):
    model.train()
    optimizer.zero_grad()
    out = model(features, adjacency)
    loss = F.cross_entropy(out[train_mask], label[train_mask])
    loss.backward()
    optimizer.step()
    if epoch % 20 == 0:
        acc = (out.argmax(1) == label)[~train_mask].float().mean()
        print(f"epoch {epoch} loss {loss.item():.3f} test {acc.item():.3f}")
