import torch
from torch import nn


class AffineCoupling(nn.Module):
    def __init__(self, dim, hidden=32, flip=False):
        super().__init__()
        self.flip = flip
        self.half = dim // 2
        self.net = nn.Sequential(nn.Linear(self.half, hidden), nn.ReLU(), nn.Linear(hidden, 2 * (dim - self.half)))

    def forward(self, x):
        if self.flip:
            x = x.flip(-1)
        a, b = x[:, : self.half], x[:, self.half :]
        s, t = self.net(a).chunk(2, dim=-1)
        s = torch.tanh(s)
        y = torch.cat([a, b * s.exp() + t], dim=-1)
        return y, s.sum(-1)


class RealNVP(nn.Module):
    def __init__(self, dim=6, layers=4):
        super().__init__()
        self.layers = nn.ModuleList([AffineCoupling(dim, flip=i % 2 == 1) for i in range(layers)])

    def forward(self, x):
        log_det = 0
        for layer in self.layers:
            x, ld = layer(x)
            log_det = log_det + ld
        return x, log_det


def build_model():
    torch.manual_seed(0)
    return RealNVP()


def build_batch():
    torch.manual_seed(1)
    return torch.randn(64, 6) * 1.5 + 0.3


def loss_fn(output, batch):
    z, log_det = output
    log_pz = -0.5 * (z.pow(2) + torch.log(torch.tensor(2 * torch.pi))).sum(-1)
    return -(log_pz + log_det).mean()
