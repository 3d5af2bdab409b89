"""A small network for quantization-aware training."""

import torch
from torch import nn
from torch.nn import functional as F


class FakeQuantize(nn.Module):
    def __init__(self, bits):
        super().__init__()
        self.levels = 2 ** (bits - 1) - 1

    def forward(self, x):
        scale = x.detach().abs().max().clamp(min=1e-8) / self.levels
        quantized = torch.round(x / scale).clamp(-self.levels - 1, self.levels) * scale
        return quantized


class QuantLinear(nn.Linear):
    def __init__(self, inputs, outputs, bits=8):
        super().__init__(inputs, outputs)
        self.quantize = FakeQuantize(bits)

    def forward(self, x):
        return F.linear(x, self.quantize(self.weight), self.bias)


class QuantNet(nn.Module):
    def __init__(self, bits=6, width=32):
        super().__init__()
        self.first = QuantLinear(12, width, bits)
        self.norm = nn.LayerNorm(width)
        self.second = QuantLinear(width, width, bits)
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        x = F.relu(self.second(x))
        return self.head(x)


def build_model():
    torch.manual_seed(0)
    return QuantNet()


def build_batch():
    torch.manual_seed(1)
    return torch.randn(16, 12), torch.randint(0, 5, (16,))


def loss_fn(output, batch):
    return F.cross_entropy(output, batch[1])
