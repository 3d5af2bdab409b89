"""Dense graph attention for the properties of molecule-like graphs."""
import torch
import torch.nn.functional as F
from torch import nn


class GraphAttention(nn.Module):
    def __init__(self, n_in, n_out, heads):
        super().__init__()
        self.heads, self.n_out = heads, n_out
        self.lift = nn.Linear(n_in, heads * n_out, bias=False)
        self.to_source = nn.Parameter(0.3 * torch.randn(heads, n_out))
        self.to_target = nn.Parameter(0.3 * torch.randn(heads, n_out))

    def forward(self, x, adjacency):
        b, n, _ = x.shape
        h = self.lift(x).view(b, n, self.heads, self.n_out)
        source = (h * self.to_source).sum(-1)
        target = (h * self.to_target).sum(-1)
        e = F.leaky_relu(target.unsqueeze(2) + source.unsqueeze(1), 0.2)
        e = e.masked_fill(~adjacency.unsqueeze(-1), -1e9)
        alpha = torch.softmax(e, dim=-1)
        out = torch.einsum("bijh,bjhd->bihd", alpha, h)
        return out.reshape(b, n, self.heads * self.n_out)


class GAT(nn.Module):
    def __init__(self, n_in=6, dim=8, heads=3):
        super().__init__()
        self.layer1 = GraphAttention(n_in, dim, heads)
        self.layer2 = GraphAttention(dim * heads, dim, heads)
        self.norm = nn.LayerNorm(dim * heads)
        self.readout = nn.Sequential(nn.Linear(dim * heads, 16), nn.ELU(), nn.Linear(16, 1))

    def forward(self, batch):
        x, adjacency, real, _ = batch
        h = F.elu(self.layer1(x, adjacency))
        h = self.norm(self.layer2(h, adjacency))
        weight = real.unsqueeze(-1).float()
        return self.readout((h * weight).sum(1) / weight.sum(1)).squeeze(-1)


def build_model():
    torch.manual_seed(211)
    return GAT()


def build_batch():
    g = torch.Generator().manual_seed(212)
    b, n = 20, 9
    size = torch.randint(4, n + 1, (b, 1), generator=g)
    real = torch.arange(n).expand(b, n) < size
    bonds = torch.rand(b, n, n, generator=g) < 0.35
    bonds = (bonds | bonds.transpose(1, 2)) & real.unsqueeze(1) & real.unsqueeze(2)
    adjacency = bonds | torch.eye(n, dtype=torch.bool)
    x = torch.randn(b, n, 6, generator=g) * real.unsqueeze(-1)
    target = (bonds.sum((1, 2)).float() / n) - 1
    return x, adjacency, real, target


def loss_fn(output, batch):
    return F.mse_loss(output, batch[3])
