import math

import torch
from torch import nn


class AffineCoupling(nn.Module):
    def __init__(self, dim, hidden, flip):
        super().__init__()
        self.flip = flip
        half = dim // 2
        self.net = nn.Sequential(nn.Linear(half, hidden), nn.Tanh(), nn.Linear(hidden, 2 * half))

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        if self.flip:
            a, b = b, a
        shift, log_scale = self.net(a).chunk(2, dim=1)
        b = b * log_scale.exp() + shift
        log_det = log_scale.sum(1)
        if self.flip:
            a, b = b, a
        return torch.cat([a, b], dim=1), log_det


class Flow(nn.Module):
    def __init__(self, dim=4, layers=4, hidden=32):
        super().__init__()
        self.couplings = nn.ModuleList(AffineCoupling(dim, hidden, i % 2 == 1) for i in range(layers))

    def log_prob(self, x):
        total = x.new_zeros(len(x))
        for coupling in self.couplings:
            x, log_det = coupling(x)
            total = total + log_det
        base = -0.5 * (x**2).sum(1) - 0.5 * x.shape[1] * math.log(2 * math.pi)
        return base + total


def sample(n):
    z = torch.randn(n, 4)
    return torch.stack([z[:, 0], z[:, 0] ** 2 * 0.5 + 0.3 * z[:, 1], z[:, 2] * 2, z[:, 3] + z[:, 2]], 1)


def main():
    torch.manual_seed(0)
    flow = Flow()
    optimizer = torch.optim.Adam(flow.parameters(), lr=2e-3)
    for step in range(300):
        loss = -flow.log_prob(sample(128)).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        optimizer.step()
        if step % 60 == 59:
            print(step, round(loss.item(), 3))


main()
