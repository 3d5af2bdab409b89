import copy

import torch
import torch.nn.functional as F
from torch import nn


def sine_task(shots=10):
    amplitude = 0.5 + 2 * torch.rand(1)
    phase = 3.14 * torch.rand(1)

    def draw():
        x = 10 * torch.rand(shots, 1) - 5
        return x, amplitude * torch.sin(x + phase)

    return draw(), draw()


def regressor(hidden=40):
    return nn.Sequential(
        nn.Linear(1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
    )


def adapt(model, support, lr, steps):
    learner = copy.deepcopy(model)
    optimizer = torch.optim.SGD(learner.parameters(), lr=lr)
    x, y = support
    for _ in range(steps):
        optimizer.zero_grad()
        F.mse_loss(learner(x), y).backward()
        optimizer.step()
    learner.zero_grad()
    return learner


def meta_step(model, meta_optimizer, tasks, lr=0.02, steps=2):
    meta_optimizer.zero_grad()
    total = 0.0
    for support, query in tasks:
        learner = adapt(model, support, lr, steps)
        loss = F.mse_loss(learner(query[0]), query[1]) / len(tasks)
        loss.backward()
        total += loss.item()
    meta_optimizer.step()
    return total


def main():
    torch.manual_seed(10)
    model = regressor()
    meta_optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for iteration in range(40):
        loss = meta_step(model, meta_optimizer, [sine_task() for _ in range(4)])
        if iteration % 10 == 0:
            print(f"{iteration}: {loss:.3f}")


if __name__ == "__main__":
    main()
