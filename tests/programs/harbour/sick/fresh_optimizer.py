"""Fine-tune with fake quantisation; the bit width falls from stage to stage."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn


class FakeQuantise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, levels):
        scale = x.abs().max().clamp(min=1e-8) / levels
        return (x / scale).round() * scale

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class QuantLinear(nn.Linear):
    bits = 8

    def forward(self, x):
        weight = FakeQuantise.apply(self.weight, 2 ** (self.bits - 1) - 1)
        return F.linear(x, weight, self.bias)


class Stage:
    def __init__(self, model, bits, lr):
        self.model, self.bits = model, bits
        self.make = partial(torch.optim.Adam, lr=lr, betas=(0.9, 0.99))

    @property
    def optimizer(self):
        return self.make(self.model.parameters())

    def enter(self):
        for module in self.model.modules():
            if isinstance(module, QuantLinear):
                module.bits = self.bits

    def step(self, x, y):
        loss = F.mse_loss(self.model(x), y)
        self.model.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def main():
    torch.manual_seed(0)
    model = nn.Sequential(QuantLinear(10, 48), nn.Hardtanh(-3, 3), QuantLinear(48, 48), nn.Hardtanh(-3, 3), QuantLinear(48, 2))
    mixing = torch.randn(10, 2)
    for bits, lr in ((8, 3e-3), (4, 1e-3)):
        stage = Stage(model, bits, lr)
        stage.enter()
        for _ in range(30):
            x = torch.randn(64, 10)
            loss = stage.step(x, torch.sin(x @ mixing))
        print(bits, round(loss, 4))


if __name__ == "__main__":
    main()
