"""Reptile on sine waves: the meta-gradient is the difference between adapted and initial weights."""
import copy
import math

import torch
from torch import nn


def make_net(width=32):
    return nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))


class Wave:
    def __init__(self):
        self.amplitude = 0.5 + 2 * torch.rand(1)
        self.phase = math.pi * torch.rand(1)

    def draw(self, n):
        x = 10 * torch.rand(n, 1) - 5
        return x / 5, self.amplitude * torch.sin(x + self.phase)


def adapt(net, wave, steps, lr):
    fast = copy.deepcopy(net)
    optimizer = torch.optim.SGD(fast.parameters(), lr=lr)
    for _ in range(steps):
        x, y = wave.draw(16)
        loss = (fast(x) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return fast, loss.item()


def main():
    torch.manual_seed(309)
    net = make_net()
    meta = torch.optim.Adam(net.parameters(), lr=5e-3)
    for it in range(12):
        meta.zero_grad()
        losses = []
        for _ in range(3):
            fast, loss = adapt(net, Wave(), steps=5, lr=0.02)
            losses.append(loss)
            with torch.no_grad():
                for p, q in zip(net.parameters(), fast.parameters()):
                    difference = (p - q) / 3
                    p.grad = difference if p.grad is None else p.grad + difference
        meta.step()
        if it % 3 == 0:
            print(f"meta step {it} loss {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    main()
