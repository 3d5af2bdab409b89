"""Quantization-aware keyword spotting with fake quantization of activations and weights."""

import torch
from torch import nn
from torch.nn import functional as F


def fake_quantize(x, scale, bits=4):
    qmax = 2 ** (bits - 1) - 1
    scaled = (x / scale).clamp(-qmax - 1, qmax)
    rounded = scaled + (torch.round(scaled) - scaled).detach()
    return rounded * scale


class QuantConv1d(nn.Module):
    def __init__(self, c_in, c_out, kernel):
        super().__init__()
        self.conv = nn.Conv1d(c_in, c_out, kernel, padding=kernel // 2)
        self.register_buffer("w_scale", torch.tensor(0.08))
        self.register_buffer("a_scale", torch.tensor(0.25))

    def forward(self, x):
        w = fake_quantize(self.conv.weight, self.w_scale)
        x = fake_quantize(x, self.a_scale)
        return F.conv1d(x, w, self.conv.bias, padding=self.conv.padding)


class KeywordNet(nn.Module):
    def __init__(self, mels=16, classes=6):
        super().__init__()
        self.c1 = QuantConv1d(mels, 24, 5)
        self.c2 = QuantConv1d(24, 24, 3)
        self.fc = nn.Linear(24, classes)

    def forward(self, mel):
        h = F.relu(self.c1(mel))
        h = F.relu(self.c2(h))
        return self.fc(h.mean(dim=-1))


def build_model():
    torch.manual_seed(1)
    return KeywordNet()


def build_batch():
    g = torch.Generator().manual_seed(2)
    return torch.randn(12, 16, 30, generator=g), torch.randint(6, (12,), generator=g)


def compute_loss(model, batch):
    mel, labels = batch
    return F.cross_entropy(model(mel), labels)
