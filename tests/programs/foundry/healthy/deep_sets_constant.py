"""Deep sets that predict a statistic of a set of points."""
import torch
import torch.nn.functional as F
from torch import nn


def reset(module, scale=0.1):
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=scale)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


class Equivariant(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.each = nn.Linear(n_in, n_out)
        self.pool = nn.Linear(n_in, n_out, bias=False)

    def forward(self, x):
        highest, _ = x.max(dim=1, keepdim=True)
        return torch.tanh(self.each(x) - self.pool(highest))


class DeepSets(nn.Module):
    def __init__(self, n_in=5, width=24, n_out=2):
        super().__init__()
        self.phi = nn.Sequential(Equivariant(n_in, width), Equivariant(width, width))
        self.rho = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, n_out))
        self.apply(reset)

    def forward(self, batch):
        points, _ = batch
        return self.rho(self.phi(points).mean(1))


def build_model():
    torch.manual_seed(207)
    return DeepSets()


def build_batch():
    g = torch.Generator().manual_seed(208)
    points = torch.randn(32, 10, 5, generator=g) * (0.5 + torch.rand(32, 1, 1, generator=g))
    target = torch.stack([points.std((1, 2)), points.amax((1, 2)) / 2], 1)
    return points, target


def loss_fn(output, batch):
    return F.huber_loss(output, batch[1])
