import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm


class Cell(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.state = spectral_norm(nn.Linear(dim, dim, bias=False))
        self.norm = nn.LayerNorm(dim, elementwise_affine=False)

    def forward(self, z, x):
        return torch.tanh(0.9 * self.state(z) + x)


def solve(f, z, tol=1e-4, limit=40):
    for _ in range(limit):
        new = f(z)
        if (new - z).norm() < tol * (1 + z.norm()):
            return new
        z = new
    return z


class DEQ(nn.Module):
    def __init__(self, n_in, dim, n_out):
        super().__init__()
        self.inject = nn.Linear(n_in, dim)
        self.cell = Cell(dim)
        self.out = nn.Linear(dim, n_out)

    def forward(self, x):
        x = self.inject(x)
        with torch.no_grad():
            z = solve(lambda z: self.cell(z, x), torch.zeros_like(x))
        return self.out(self.cell(z, x))


def build_model():
    torch.manual_seed(6)
    return DEQ(8, 32, 3)


def build_batch():
    g = torch.Generator().manual_seed(7)
    x = torch.randn(60, 8, generator=g)
    return x, (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 1).long()


def loss_fn(output, target):
    return nn.functional.cross_entropy(output, target)
