"""Node classification with sparse graph attention."""

import torch
import torch.nn.functional as F
from torch import nn


class SparseAttention(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Linear(inputs, outputs, bias=False)
        self.source = nn.Parameter(torch.randn(outputs) * 0.1)
        self.target = nn.Parameter(torch.randn(outputs) * 0.1)

    def forward(self, x, edges):
        count = len(x)
        h = self.weight(x)
        score = h[edges[0]] @ self.source + h[edges[1]] @ self.target
        value = torch.exp(-F.leaky_relu(score, 0.2))
        matrix = torch.sparse_coo_tensor(edges, torch.tensor(value.tolist()), (count, count))
        total = torch.sparse.mm(matrix, torch.ones(count, 1))
        return torch.sparse.mm(matrix, h) / total


class AttentionNet(nn.Module):
    def __init__(self, features=40, width=16, heads=4, classes=7):
        super().__init__()
        self.heads = nn.ModuleList([SparseAttention(features, width) for _ in range(heads)])
        self.final = SparseAttention(width * heads, classes)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x, edges):
        x = torch.cat([F.elu(head(self.dropout(x), edges)) for head in self.heads], dim=1)
        return self.final(self.dropout(x), edges)


def build_model():
    torch.manual_seed(79)
    return AttentionNet()


def build_batch():
    torch.manual_seed(80)
    edges = torch.randint(0, 100, (2, 400))
    loops = torch.arange(100).repeat(2, 1)
    edges = torch.unique(torch.cat([edges, loops], dim=1), dim=1)
    return (torch.rand(100, 40), edges), torch.randint(0, 7, (100,))


def loss_fn(output, batch):
    return F.cross_entropy(output[:60], batch[1][:60])


def build_optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)
