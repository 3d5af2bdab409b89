"""Critic with hand-written spectral normalisation as a parametrization; hinge loss on real and fake vectors."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrize


class Spectral(nn.Module):
    def __init__(self, weight):
        super().__init__()
        u, _, vh = torch.linalg.svd(weight.detach(), full_matrices=False)
        self.register_buffer("u", u[:, 0].clone())
        self.register_buffer("v", vh[0].clone())

    def forward(self, weight):
        with torch.no_grad():
            self.v.copy_(F.normalize(weight.t() @ self.u, dim=0))
            self.u.copy_(F.normalize(weight @ self.v, dim=0))
        u, v = self.u.clone(), self.v.clone()
        sigma = (u @ weight @ v).detach()
        return weight / sigma


class Critic(nn.Module):
    def __init__(self, n_in=8, hidden=32):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(n_in, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, 1, bias=False)])
        for layer in self.layers:
            parametrize.register_parametrization(layer, "weight", Spectral(layer.weight))

    def forward(self, real, fake):
        def score(x):
            for layer in self.layers[:-1]:
                x = F.leaky_relu(layer(x), 0.1)
            return self.layers[-1](x)
        return score(real), score(fake)


def build_model():
    torch.manual_seed(611)
    return Critic()


def build_batch():
    g = torch.Generator().manual_seed(612)
    return {"real": torch.randn(24, 8, generator=g) + 0.5, "fake": 0.7 * torch.randn(24, 8, generator=g)}


def loss_fn(output, batch):
    real, fake = output
    return F.relu(1 - real).mean() + F.relu(1 + fake).mean()
