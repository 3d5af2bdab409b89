import torch
from torch import nn


class LearnedGraph(nn.Module):
    def __init__(self, features, dim):
        super().__init__()
        self.source = nn.Linear(features, dim)
        self.target = nn.Linear(features, dim)
        self.scale = dim**-0.5

    def forward(self, x):
        scores = self.source(x) @ self.target(x).transpose(1, 2) * self.scale
        adj = torch.softmax(scores, dim=-1)
        return adj


class GraphConv(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.self_loop = nn.Linear(n_in, n_out)
        self.neighbour = nn.Linear(n_in, n_out, bias=False)

    def forward(self, x, adj):
        return self.self_loop(x) + adj @ self.neighbour(x)


class TrafficNet(nn.Module):
    def __init__(self, history=12, horizon=3, hidden=32):
        super().__init__()
        self.graph = LearnedGraph(history, 16)
        self.conv1 = GraphConv(history, hidden)
        self.conv2 = GraphConv(hidden, horizon)

    def forward(self, x):
        adj = self.graph(x)
        h = torch.relu(self.conv1(x, adj))
        return self.conv2(h, adj)


def build_model():
    torch.manual_seed(2)
    return TrafficNet()


def build_batch():
    g = torch.Generator().manual_seed(3)
    base = torch.randn(10, 14, 1, generator=g)
    t = torch.arange(15) / 5.0
    series = torch.sin(t + base * 3)
    return series[..., :12], series[..., 12:]


def loss_fn(output, target):
    return nn.functional.l1_loss(output, target)
