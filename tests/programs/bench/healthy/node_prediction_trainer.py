"""Node classification on a random graph, with a trainer class."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class GraphConv(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.own = nn.Linear(d_in, d_out)
        self.neigh = nn.Linear(d_in, d_out, bias=False)

    def forward(self, adj, h):
        degree = adj.sum(dim=1, keepdim=True).clamp(min=1)
        return self.own(h) + self.neigh(adj @ h / degree)


class Model(nn.Module):
    def __init__(self, d_in, hidden, classes):
        super().__init__()
        self.conv1 = GraphConv(d_in, hidden)
        self.conv2 = GraphConv(hidden, classes)

    def forward(self, adj, x):
        return self.conv2(adj, F.relu(self.conv1(adj, x)))


class NodeTrainer:
    def __init__(self, model, lr):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def fit(self, graph, epochs, max_grad_norm=None):
        adj, x, y, train_idx = graph
        for epoch in range(epochs):
            logits = self.model(adj, x)
            loss = F.cross_entropy(logits[train_idx], y[train_idx])
            self.optimizer.zero_grad()
            loss.backward()
            if max_grad_norm is not None:
                nn.utils.clip_grad_norm_(self.model.parameters(), max_grad_norm)
            self.optimizer.step()
            if epoch % 10 == 0:
                acc = (logits.argmax(1) == y).float().mean()
                print(f"epoch {epoch:3d} loss {loss.item():.4f} acc {acc.item():.3f}")


def random_graph(nodes=120, classes=3, d_in=16):
    y = torch.randint(classes, (nodes,))
    same = (y[:, None] == y[None, :]).float()
    adj = (torch.rand(nodes, nodes) < 0.02 + 0.1 * same).float()
    x = torch.randn(classes, d_in)[y] + torch.randn(nodes, d_in)
    return adj, x, y, torch.randperm(nodes)[:80]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--max-grad-norm", type=float, default=0.5)
    args = parser.parse_args()
    torch.manual_seed(11)
    trainer = NodeTrainer(Model(16, 32, 3), lr=1e-2)
    trainer.fit(random_graph(), args.epochs, args.max_grad_norm)
