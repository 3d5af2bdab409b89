import torch
import torch.nn as nn
import torch.nn.functional as F


class SparseMixture(nn.Module):
    def __init__(self, d=16, experts=4):
        super().__init__()
        self.gate = nn.Linear(d, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, d)) for _ in range(experts)
        )

    def forward(self, x):
        value, index = F.softmax(self.gate(x), dim=-1).topk(1, dim=-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            chosen = (index.squeeze(-1) == i).nonzero().squeeze(-1)
            if len(chosen):
                out = out.index_add(0, chosen, expert(x[chosen]))
        return out


class MoERegressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(5, 16)
        self.mixture = SparseMixture()
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        h = torch.tanh(self.embed(x))
        return self.head(h + self.mixture(h)).squeeze(1)


def build_model():
    torch.manual_seed(51)
    return MoERegressor()


def build_batch():
    g = torch.Generator().manual_seed(52)
    x = torch.randn(96, 5, generator=g)
    return x, torch.where(x[:, 0] > 0, x[:, 1], -x[:, 2])


def loss_fn(output, batch):
    return F.mse_loss(output, batch[1])
