import math

import torch
import torch.nn as nn
from torch.func import functional_call


class Regressor(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, x):
        return self.layers(x)


class SineTask:
    def __init__(self, g):
        self.g = g
        self.amp = 0.5 + 1.5 * torch.rand(1, generator=g)
        self.phase = math.pi * torch.rand(1, generator=g)

    def sample(self, n=10):
        x = 6 * torch.rand(n, 1, generator=self.g) - 3
        return x, self.amp * torch.sin(x + self.phase)


def inner_loop(model, params, support, lr, steps):
    x, y = support
    fast = dict(params)
    for _ in range(steps):
        loss = nn.functional.mse_loss(functional_call(model, fast, (x,)), y)
        grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
        fast = {k: (v - lr * d).detach().requires_grad_() for (k, v), d in zip(fast.items(), grads)}
    return fast


def meta_train(iterations=100, tasks=6, inner_lr=0.03, inner_steps=2):
    torch.manual_seed(291)
    g = torch.Generator().manual_seed(292)
    model = Regressor()
    meta_opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for it in range(iterations):
        params = dict(model.named_parameters())
        meta_loss = 0.0
        for _ in range(tasks):
            task = SineTask(g)
            fast = inner_loop(model, params, task.sample(), inner_lr, inner_steps)
            x, y = task.sample()
            meta_loss = meta_loss + nn.functional.mse_loss(functional_call(model, fast, (x,)), y) / tasks
        meta_opt.zero_grad()
        meta_loss.backward()
        meta_opt.step()
        if it % 20 == 0:
            print(f"iteration {it} query loss {meta_loss.item():.4f}")


meta_train()
