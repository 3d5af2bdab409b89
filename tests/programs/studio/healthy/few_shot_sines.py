"""Model-agnostic meta-learning on sine regression."""

import argparse

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F


class Regressor(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.body(x))


class Task:
    def __init__(self):
        self.amplitude = 0.5 + 2 * torch.rand(1)
        self.phase = 3.14159 * torch.rand(1)

    def sample(self, n):
        x = 10 * torch.rand(n, 1) - 5
        return x, self.amplitude * torch.sin(x + self.phase)


def adapt(model, params, x, y, lr, steps, first_order):
    for _ in range(steps):
        loss = F.mse_loss(functional_call(model, params, (x,)), y)
        grads = torch.autograd.grad(loss, list(params.values()), create_graph=not first_order)
        params = {
            name: value - lr * grad
            for (name, value), grad in zip(params.items(), grads, strict=True)
        }
    return params


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--first-order", action="store_true")
    parser.add_argument("--inner-lr", type=float, default=0.05)
    parser.add_argument("--inner-steps", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=40)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = Regressor()
    meta = torch.optim.Adam(model.parameters(), lr=1e-3)
    for iteration in range(args.iterations):
        meta.zero_grad()
        total = 0.0
        for _ in range(args.tasks):
            task = Task()
            fast = adapt(model, dict(model.named_parameters()), *task.sample(10), args.inner_lr, args.inner_steps, args.first_order)
            x, y = task.sample(10)
            loss = F.mse_loss(functional_call(model, fast, (x,)), y) / args.tasks
            loss.backward()
            total += loss.item()
        meta.step()
        if iteration % 10 == 0:
            print(iteration, round(total, 4))


if __name__ == "__main__":
    main()
