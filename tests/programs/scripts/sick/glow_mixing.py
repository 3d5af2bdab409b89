import math

import torch
import torch.nn as nn


class Mixing(nn.Module):
    def __init__(self, dim):
        super().__init__()
        q, _ = torch.linalg.qr(torch.randn(dim, dim))
        self.weight = nn.Parameter(q)

    def forward(self, x):
        logdet = torch.linalg.slogdet(self.weight.data)[1]
        return x @ self.weight, logdet.expand(len(x))


class Coupling(nn.Module):
    def __init__(self, dim, width=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim // 2, width), nn.ReLU(), nn.Linear(width, dim))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x.chunk(2, 1)
        shift, scale = self.net(a).chunk(2, 1)
        scale = torch.tanh(scale)
        return torch.cat([a, (b + shift) * scale.exp()], 1), scale.sum(1)


class Flow(nn.Module):
    def __init__(self, dim=4, blocks=3):
        super().__init__()
        self.blocks = nn.ModuleList()
        for _ in range(blocks):
            self.blocks.append(Mixing(dim))
            self.blocks.append(Coupling(dim))

    def log_prob(self, x):
        total = torch.zeros(len(x))
        for block in self.blocks:
            x, logdet = block(x)
            total = total + logdet
        return total - 0.5 * (x**2 + math.log(2 * math.pi)).sum(1)


def data(n):
    r = 2 + 0.2 * torch.randn(n, 1)
    angle = torch.rand(n, 1) * 2 * math.pi
    return torch.cat([r * angle.cos(), r * angle.sin(), 0.5 * torch.randn(n, 2)], 1)


if __name__ == "__main__":
    torch.manual_seed(23)
    flow = Flow()
    optimizer = torch.optim.Adam(flow.parameters(), lr=3e-3)
    for step in range(150):
        loss = -flow.log_prob(data(128)).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(step, loss.item())
