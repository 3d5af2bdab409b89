import copy
import math

import torch
from torch import nn


def make_model():
    return nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))


class SineTask:
    def __init__(self):
        self.amplitude = torch.rand(()) * 4 + 1
        self.phase = torch.rand(()) * 2 * math.pi

    def batch(self, count):
        x = torch.rand(count, 1) * 10 - 5
        return x, self.amplitude * torch.sin(x + self.phase)


def inner_train(model, task, steps, lr):
    fast = copy.deepcopy(model)
    optimizer = torch.optim.SGD(fast.parameters(), lr=lr)
    for _ in range(steps):
        x, y = task.batch(20)
        loss = nn.functional.mse_loss(fast(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return fast, loss.item()


def evaluate(model):
    task = SineTask()
    fast, _ = inner_train(model, task, steps=5, lr=0.02)
    with torch.no_grad():
        x, y = task.batch(100)
        return nn.functional.mse_loss(fast(x), y).item()


def main(iterations=15, tasks=3):
    torch.manual_seed(46)
    model = make_model()
    outer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for iteration in range(iterations):
        outer.zero_grad()
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        for _ in range(tasks):
            fast, loss = inner_train(model, SineTask(), steps=5, lr=0.02)
            with torch.no_grad():
                for p, q in zip(model.parameters(), fast.parameters()):
                    p.grad.add_(p - q, alpha=1 / tasks)
        outer.step()
        if iteration % 5 == 0:
            print(f"{iteration} inner {loss:.4f} held {evaluate(model):.4f}")


if __name__ == "__main__":
    main()
