"""Reptile on sine waves: the outer optimizer follows the mean of the inner displacements."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn


def sine_task(generator):
    amplitude = 0.5 + 2 * torch.rand((), generator=generator)
    phase = math.pi * torch.rand((), generator=generator)
    def draw(count):
        x = 6 * torch.rand(count, 1, generator=generator) - 3
        return x, amplitude * torch.sin(x + phase)
    return draw


def adapted(model, draw, steps=5, lr=0.02):
    clone = copy.deepcopy(model)
    inner = torch.optim.SGD(clone.parameters(), lr=lr)
    for _ in range(steps):
        x, y = draw(10)
        inner.zero_grad()
        F.mse_loss(clone(x), y).backward()
        inner.step()
    return clone


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    outer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for iteration in range(20):
        clones = [adapted(model, sine_task(generator)) for _ in range(3)]
        outer.zero_grad()
        for slow, *fast in zip(model.parameters(), *(clone.parameters() for clone in clones)):
            slow.grad = slow.detach() - torch.stack([each.detach() for each in fast]).mean(0)
        outer.step()
    x, y = sine_task(generator)(64)
    print(F.mse_loss(model(x), y).item())


if __name__ == "__main__":
    main()
