import torch
import torch.nn as nn


def quantise(w, levels=15):
    scale = w.detach().abs().max() / (levels // 2)
    q = torch.round(w / scale) * scale
    return w + (q - w).detach()


class QLinear(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x, quantise(self.weight), self.bias)


def build_model():
    torch.manual_seed(401)
    return nn.Sequential(QLinear(8, 32), nn.ReLU(), QLinear(32, 3))


def build_batch():
    g = torch.Generator().manual_seed(402)
    x = torch.randn(64, 8, generator=g)
    return x, x[:, :3].argmax(1)


def loss_fn(output, batch):
    return nn.functional.cross_entropy(output, batch[1])
