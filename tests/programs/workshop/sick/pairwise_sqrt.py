import torch
import torch.nn as nn
import torch.nn.functional as F


def pairwise_distance(x):
    diff = x.unsqueeze(2) - x.unsqueeze(1)
    sq = diff.pow(2).sum(-1)
    return sq.sqrt()


class Potential(nn.Module):
    """Predicts an energy from positions that a network refines first."""

    def __init__(self, n_basis=12, hidden=24):
        super().__init__()
        self.refine = nn.Linear(3, 3)
        nn.init.eye_(self.refine.weight)
        self.register_buffer("centers", torch.linspace(0, 4, n_basis))
        self.net = nn.Sequential(nn.Linear(n_basis, hidden), nn.SiLU(), nn.Linear(hidden, 1))

    def forward(self, pos):
        d = pairwise_distance(self.refine(pos))
        rbf = torch.exp(-(d.unsqueeze(-1) - self.centers) ** 2)
        off = 1 - torch.eye(pos.size(1), device=pos.device)
        return (self.net(rbf).squeeze(-1) * off).sum((1, 2))


def build_model():
    torch.manual_seed(0)
    return Potential()


def build_batch():
    torch.manual_seed(1)
    pos = torch.randn(8, 6, 3)
    return pos, torch.cdist(pos, pos).sum((1, 2)) / 10


def loss_fn(output, batch):
    return F.l1_loss(output, batch[1])
