"""Model-agnostic meta-learning of sine waves with functional calls."""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call


def task():
    amplitude, phase = 0.5 + 2 * torch.rand(1), math.pi * torch.rand(1)

    def draw(n):
        x = 6 * torch.rand(n, 1) - 3
        return x, amplitude * torch.sin(x + phase)

    return draw


class Regressor(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )

    def forward(self, x):
        return self.net(x)


class MetaLearner:
    def __init__(self, model, inner_lr=0.02, inner_steps=2):
        self.model = model
        self.inner_lr, self.inner_steps = inner_lr, inner_steps
        self.optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def adapt(self, x, y):
        fast = dict(self.model.named_parameters())
        for _ in range(self.inner_steps):
            loss = F.mse_loss(functional_call(self.model, fast, (x,)), y)
            grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
            fast = {
                name: (weight - self.inner_lr * grad).detach().requires_grad_()
                for (name, weight), grad in zip(fast.items(), grads)
            }
        return fast

    def outer_step(self, tasks):
        self.optimizer.zero_grad()
        total = 0.0
        for draw in tasks:
            fast = self.adapt(*draw(10))
            x, y = draw(10)
            loss = F.mse_loss(functional_call(self.model, fast, (x,)), y) / len(tasks)
            loss.backward()
            total += loss.item()
        self.optimizer.step()
        return total


def main():
    torch.manual_seed(113)
    learner = MetaLearner(Regressor())
    for it in range(15):
        loss = learner.outer_step([task() for _ in range(4)])
        if it % 5 == 0:
            print(f"outer step {it} loss {loss:.4f}")


if __name__ == "__main__":
    main()
