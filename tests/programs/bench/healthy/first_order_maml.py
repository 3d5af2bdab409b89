"""First-order MAML: the outer gradient is that of the adapted clone."""

import copy

import torch
from torch import nn
from torch.nn import functional as F


def sine_task(n=10):
    a, b = 0.5 + 4 * torch.rand(1), 3.14 * torch.rand(1)
    x = 10 * torch.rand(2 * n, 1) - 5
    y = a * torch.sin(x - b)
    return (x[:n], y[:n]), (x[n:], y[n:])


class FOMAML:
    def __init__(self, model, inner_lr=0.02, outer_lr=2e-3, inner_steps=2):
        self.model, self.inner_lr, self.inner_steps = model, inner_lr, inner_steps
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=outer_lr)

    def adapted(self, support):
        clone = copy.deepcopy(self.model)
        for _ in range(self.inner_steps):
            loss = F.mse_loss(clone(support[0]), support[1])
            grads = torch.autograd.grad(loss, list(clone.parameters()))
            with torch.no_grad():
                for p, g in zip(clone.parameters(), grads):
                    p.sub_(self.inner_lr * g)
        return clone

    def outer_step(self, tasks):
        self.optimizer.zero_grad()
        total = 0.0
        for p in self.model.parameters():
            p.grad = torch.zeros_like(p)
        for support, query in tasks:
            clone = self.adapted(support)
            loss = F.mse_loss(clone(query[0]), query[1])
            grads = torch.autograd.grad(loss, list(clone.parameters()))
            for p, g in zip(self.model.parameters(), grads):
                p.grad.add_(g, alpha=1 / len(tasks))
            total += loss.item() / len(tasks)
        self.optimizer.step()
        return total


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    maml = FOMAML(net)
    for it in range(20):
        loss = maml.outer_step([sine_task() for _ in range(4)])
        if it % 5 == 0:
            print(f"{it}: {loss:.4f}")
