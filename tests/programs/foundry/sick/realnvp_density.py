"""Normalising flow of affine couplings that fits a banana."""
import torch
from torch import nn
from torch.distributions import MultivariateNormal


class ActNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(dim))
        self.shift = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return (x + self.shift) * self.log_scale.exp(), self.log_scale.sum().expand(len(x))


class Coupling(nn.Module):
    def __init__(self, dim, flip, width=32):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(dim // 2, width), nn.ReLU(), nn.Linear(width, dim))

    def forward(self, x):
        a, b = x.chunk(2, -1)
        if self.flip:
            a, b = b, a
        log_s, t = self.net(a).chunk(2, -1)
        log_s = torch.tanh(log_s)
        b = b * log_s.exp() + t
        return torch.cat([b, a] if self.flip else [a, b], -1), log_s.sum(-1)


class Flow(nn.Module):
    def __init__(self, dim=4, depth=4):
        super().__init__()
        self.steps = nn.ModuleList()
        for i in range(depth):
            self.steps.append(ActNorm(dim))
            self.steps.append(Coupling(dim, flip=i % 2 == 1))
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("cov", torch.eye(dim))

    def forward(self, x):
        total = x.new_zeros(len(x))
        for step in self.steps:
            x, log_det = step(x)
            total = total + log_det
        return x, total

    def log_prob(self, x):
        z, log_det = self(x)
        base = MultivariateNormal(self.mean, self.cov).log_prob(z)
        return base - log_det


def banana(n):
    x = torch.randn(n, 4)
    x[:, 1] = 0.3 * x[:, 1] + x[:, 0].pow(2) - 1
    x[:, 3] = 0.3 * x[:, 3] + torch.sin(2 * x[:, 2])
    return x


def main():
    torch.manual_seed(107)
    flow = Flow()
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
    for step in range(120):
        loss = -flow.log_prob(banana(128)).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(flow.parameters(), 10.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"{step:4d} nll {loss.item():.3f}")


if __name__ == "__main__":
    main()
