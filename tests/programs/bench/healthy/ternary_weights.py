"""BitLinear layers: ternary weights and 8-bit activations, in the way of BitNet b1.58."""

import torch
from torch import nn
from torch.nn import functional as F


def quantize_activation(x):
    scale = 127.0 / x.abs().amax(dim=-1, keepdim=True).clamp(min=1e-5)
    return (x * scale).round().clamp(-128, 127) / scale


def quantize_weight(w):
    scale = 1.0 / w.abs().mean().clamp(min=1e-5)
    return (w * scale).round().clamp(-1, 1) / scale


class BitLinear(nn.Linear):
    def forward(self, x):
        x = F.rms_norm(x, (x.shape[-1],))
        x = x + (quantize_activation(x) - x).detach()
        w = self.weight + (quantize_weight(self.weight) - self.weight).detach()
        return F.linear(x, w, self.bias)


class BitMLP(nn.Module):
    def __init__(self, d_in=20, dim=40, classes=5):
        super().__init__()
        self.inp = BitLinear(d_in, dim, bias=False)
        self.mid = BitLinear(dim, dim, bias=False)
        self.out = nn.Linear(dim, classes)

    def forward(self, x):
        h = F.relu(self.inp(x)).square()
        return self.out(h + F.silu(self.mid(h)))


def build_model():
    torch.manual_seed(10)
    return BitMLP()


def build_batch():
    g = torch.Generator().manual_seed(11)
    return torch.randn(32, 20, generator=g), torch.randint(5, (32,), generator=g)


def compute_loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1])
