import math
import torch
from torch import nn, Tensor


class AffineCoupling(nn.Module):
    def __init__(self, dim: int, flip: bool):
        super().__init__()
        self.flip = flip
        self.shift = nn.Sequential(nn.Linear(dim // 2, 32), nn.Tanh(), nn.Linear(32, dim // 2))
        self.log_scale = nn.Parameter(torch.zeros(dim // 2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a, b = x.chunk(2, dim=1)
        if self.flip:
            a, b = b, a
        b = (b + self.shift(a)) * self.log_scale.exp()
        with torch.no_grad():
            logdet = self.log_scale.sum()
        return torch.cat([a, b], dim=1), logdet


class Flow(nn.Module):
    def __init__(self, dim: int = 4, depth: int = 4):
        super().__init__()
        self.steps = nn.ModuleList(AffineCoupling(dim, bool(i % 2)) for i in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        logdet = x.new_zeros(())
        for step in self.steps:
            x, d = step(x)
            logdet = logdet + d
        prior = -0.5 * (x ** 2 + math.log(2 * math.pi)).sum(1)
        return prior + logdet


def build_model():
    torch.manual_seed(351)
    return Flow()


def build_batch():
    g = torch.Generator().manual_seed(352)
    z = torch.randn(128, 4, generator=g)
    return torch.cat([z[:, :2] * 0.2 + 2, z[:, 2:] + z[:, :2] ** 2], 1)


def loss_fn(output, batch):
    return -output.mean()
