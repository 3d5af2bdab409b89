"""Hashing autoencoder: codes of plus and minus one through a straight-through estimator."""

import torch
import torch.nn.functional as F
from torch import nn


def binarise(x):
    hard = torch.where(x >= 0, 1.0, -1.0)
    soft = torch.tanh(x)
    return soft + (hard - soft).detach()


class Hashing(nn.Module):
    def __init__(self, inputs=32, bits=16):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, bits))
        self.decode = nn.Sequential(nn.Linear(bits, 64), nn.ReLU(), nn.Linear(64, inputs))

    def forward(self, x):
        code = binarise(self.encode(x))
        return self.decode(code), code


@torch.no_grad()
def usage(model, data):
    code = binarise(model.encode(data))
    return (code > 0).float().mean(0)


def main():
    torch.manual_seed(0)
    model = Hashing()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    data = torch.randn(512, 5) @ torch.randn(5, 32)
    for step in range(50):
        batch = data[torch.randperm(512)[:64]]
        output, code = model(batch)
        balance = code.mean(0).square().mean()
        loss = F.mse_loss(output, batch) / batch.var() + 0.1 * balance
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item(), usage(model, data).mean().item())


if __name__ == "__main__":
    main()
